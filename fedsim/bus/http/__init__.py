"""The bus over real sockets: one process serves, others host clients; see DESIGN.md.

Import from the modules: aiohttp is loaded only with ``server`` and ``client``.
"""
