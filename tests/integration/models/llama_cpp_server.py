"""llama.cpp's server: ``python llama_cpp_server.py MODEL.gguf --host HOST --port PORT``."""

import sys
import threading

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], [sys.argv[3]], int(sys.argv[5])
params.n_parallel, params.n_ctx, params.cpuparams.n_threads = 4, 8192, 1
server = xllamacpp.Server(params)
threading.Event().wait()
