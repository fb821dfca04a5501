"""HTTP of both transports: what the Muse client speaks, and the mpack transport of our own client.

Routes only: each reads a request, calls one module of the hub, and words the answer.
"""
