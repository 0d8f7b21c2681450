"""What the generated pages are made of: `source` reads texts out of the code, `words` holds those that it lacks."""
