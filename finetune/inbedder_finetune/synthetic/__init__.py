"""Training rows composed of written phrases: captions, abstracts, reviews and letters."""
