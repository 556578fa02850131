"""One module per group of claims; each exports `CLAIMS`."""
