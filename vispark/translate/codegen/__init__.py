"""The intermediate form to C++: ``scalar``, ``numpy`` and ``syntax``, each on the one before."""
