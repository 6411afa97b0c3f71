"""Other engines at the same work, on the same machine in the same minutes. `make bench-peers` installs them."""
