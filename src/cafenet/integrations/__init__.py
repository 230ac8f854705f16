"""Training loops of other libraries around a supernet; each module needs its library installed."""
