"""Runs Python commands in forks of a process that has imported what is slow to import.

`python warm_server.py SOCKET` listens; a client sends [argv, directory, environment] and its three
standard files, gets the number of a process, passes on to it the signals that it gets itself, and gets
the exit code. `argv` is a command line of `t2t-keras-...`, or of `python` with a script, `-m`, `-c` or
`-` (standard input). At SOCKET-bare listens a process that has imported TensorFlow alone.
"""

import array
import contextlib
import gc
import json
import os
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

CLIENT = """\
import array, json, os, signal, socket, sys
numbers = signal.SIGHUP, signal.SIGINT, signal.SIGTERM
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    request = [os.path.basename(sys.argv[0]), *sys.argv[1:]], os.getcwd(), dict(os.environ)
    files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
    connection.sendmsg([(json.dumps(request) + "\\n").encode()], files)
    answers = connection.makefile()
    process = int(answers.readline())
    for number in numbers:
        signal.signal(number, lambda number, frame: os.kill(process, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    sys.exit(int(answers.readline() or 1))
"""
"""The program that stands for each command on the path of a shell."""

BARE = "python-with-tensorflow"
"""A program as `python` is, in whose process there is TensorFlow, and nothing of ours."""

EAGERLY = "T2T_KERAS_TESTS_RUN_EAGERLY"
"""Environment variable that makes a command run eagerly: less work for a few steps of a small model."""

SLOW = (
    *("keras", "tensorflow_text", "sacrebleu"),
    *("t2t_keras.training", "t2t_keras.export", "t2t_keras.problems"),
)


@contextlib.contextmanager
def programs(*others):
    """A directory of our commands and of others, which a server stands behind as long as it is used."""
    setup = Path(__file__).parents[1].joinpath("setup.cfg").read_text()
    names = [*re.findall(r"^\s+(t2t-keras-\w+) =", setup, re.MULTILINE), *others]
    with tempfile.TemporaryDirectory() as folder:  # short: so must the name of a socket be
        address = os.path.join(folder, "socket")
        addresses = {**dict.fromkeys(names, address), BARE: f"{address}-bare"}
        for name, place in addresses.items():
            path = Path(folder, name)
            path.write_text(f"#!{sys.executable} -IS\n" + CLIENT.format(address=place))
            path.chmod(0o755)
        command = [sys.executable, __file__, address]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as server:
            while not all(map(os.path.exists, addresses.values())) and server.poll() is None:
                time.sleep(0.05)
            yield Path(folder)
            server.stdin.close()


def main(address):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # as every command does
    __import__("tensorflow")
    if not os.fork():
        return serve(f"{address}-bare")
    for name in SLOW:
        __import__(name)
    quick_graphs()
    serve(address)


def serve(address):
    """Answers each client by a fork, until standard input is closed."""
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are not waited for here
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        while listening in select.select([listening, sys.stdin], [], [])[0]:
            connection, _ = listening.accept()
            if not os.fork():
                listening.close()
                return answer(connection)
            connection.close()


def quick_graphs():
    """Leaves out what Python and TensorFlow do for graphs that live long; tests run most once or twice."""
    import tensorflow as tf

    # Graphs are many objects, seldom garbage: to look through all of them as often as Python does takes
    # a quarter of the time.
    gc.set_threshold(50_000, 50, 1_000)
    # XLA's programs run shorter than it compiles them.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    # Grappler, too, takes a quarter of the time from a graph's making to the end of its first run. It is
    # on in processes of their own, which are not forks of this one.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def answer(connection):
    """Runs one command, in a fork of its own so that there is an exit code to send.

    A client that is killed takes its command with it.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, files = receive(connection)
    if child := os.fork():
        connection.sendall(f"{child}\n".encode())
        if connection in select.select([connection, os.pidfd_open(child)], [], [])[0]:
            os.kill(child, signal.SIGKILL)
            os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(f"{code if code >= 0 else 128 - code}\n".encode())
        os._exit(0)
    connection.close()
    # A server in the background of a shell has been told to ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    argv, directory, environment = message
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    if EAGERLY in environment:
        sys.modules["tensorflow"].config.run_functions_eagerly(True)
    try:
        run(argv)
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what the interpreter takes apart at its end was the server's


def receive(connection):
    """The request and the numbers of the client's three files."""
    files = array.array("i")
    data, others, _, _ = connection.recvmsg(1 << 16, socket.CMSG_LEN(3 * files.itemsize))
    files.frombytes(others[0][2])
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 16)
    return json.loads(data), files


def run(argv):
    """Becomes the command."""
    name, *rest = argv
    sys.argv = argv
    if name.startswith("t2t-keras-"):
        runpy.run_module(f"t2t_keras.cli.{name.removeprefix('t2t-keras-')}", run_name="__main__")
    elif rest[:1] == ["-m"]:
        sys.argv = rest[1:]
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
    elif rest[:1] in (["-"], ["-c"]):
        code = rest.pop(1) if rest[0] == "-c" else sys.stdin.read()
        sys.argv = rest
        exec(compile(code, "<block>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = rest
        sys.path.insert(0, os.path.dirname(os.path.abspath(rest[0])))
        runpy.run_path(rest[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
