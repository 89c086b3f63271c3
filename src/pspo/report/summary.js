"use strict";
// Sorts tables by a click on a column's head, and highlights the runs that a number comes from.
(() => {
  const isMissing = (cell, kind) => (kind === "number" ? !("value" in cell.dataset) : cell.textContent.trim() === "");
  const words = new Intl.Collator("en", { numeric: true });

  function compare(a, b, kind) {
    if (kind === "number") return Number(a.dataset.value) - Number(b.dataset.value);
    return words.compare(a.textContent.trim(), b.textContent.trim());
  }

  function sort(table, column, head) {
    const kind = head.dataset.kind;
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = [...body.rows].sort((first, second) => {
      const a = first.cells[column];
      const b = second.cells[column];
      const missing = isMissing(a, kind) - isMissing(b, kind);  // last in both directions
      return missing || (isMissing(a, kind) ? 0 : sign * compare(a, b, kind));
    });
    body.append(...rows);
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (head.dataset.kind === "fixed" || table.tBodies[0].rows.length < 2) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sort(table, column, head));
    });
  }

  function markRuns() {
    for (const row of document.querySelectorAll("tr.selected")) row.classList.remove("selected");
    const anchor = document.getElementById(location.hash.slice(1));
    if (!anchor || anchor.tagName !== "SPAN" || !anchor.dataset.group) return;  // a single run is highlighted by the style sheet
    for (const row of document.querySelectorAll(`tr[data-group="${anchor.dataset.group}"]`)) row.classList.add("selected");
  }
  addEventListener("hashchange", markRuns);
  markRuns();
})();
