"""The bus over real sockets: WebSocket for control and small frames, HTTP for large ones.

One client process hosts any number of clients over one *session*; see :mod:`fedsim.bus.http.session` for the
rules that both sides keep. Import from the modules: aiohttp is loaded only with ``server`` and ``client``.
"""
