"""One state looked at closely: what the policy does there, and why."""
