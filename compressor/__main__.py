"""`python -m compressor` is `compress`."""

from compressor.cli import main

if __name__ == "__main__":
    main()
