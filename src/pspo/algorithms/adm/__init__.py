"""ADM: windows.py, model.py and fit.py make the any-step model, algorithm.py trains. Called through the registry."""
