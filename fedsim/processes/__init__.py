"""The processes of a run over sockets: a server, and the client processes that join it."""
