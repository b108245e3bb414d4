"""Runs a script that was written for tensor2tensor: `python -m t2t_keras.t2t_modules script.py ...`."""

import os
import sys
from types import ModuleType

from t2t_keras import t2t_modules
from t2t_keras.cli import options
from t2t_keras.errors import UserError


def main() -> None:
    """Runs the script as `__main__`, with its own arguments; exits with 2 after an error of ours."""
    if len(sys.argv) < 2 or not os.path.isfile(sys.argv[1]):
        sys.exit("usage: python -m t2t_keras.t2t_modules SCRIPT.py [ARGUMENT ...]")
    del sys.argv[0]
    path = os.path.abspath(sys.argv[0])
    script = ModuleType("__main__", __doc__)
    # With this module's name, so that processes that it starts do not run the script again.
    script.__spec__, script.__file__ = sys.modules["__main__"].__spec__, path
    sys.modules["__main__"], sys.path[0] = script, os.path.dirname(path)
    options.import_tensorflow()
    t2t_modules.install()
    vars(script)["__builtins__"] = t2t_modules.BUILTINS
    try:
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec"), vars(script))
    except UserError as error:
        print(f"{os.path.basename(path)}: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
