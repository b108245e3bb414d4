"""Starts the Chromium of Qt WebEngine, a package of pip's: `python qt_chromium.py URL`.

Where and how it can be driven is said by the environment variables QTWEBENGINE_REMOTE_DEBUGGING
and QTWEBENGINE_CHROMIUM_FLAGS.
"""

import sys

from PySide6.QtCore import QUrl
from PySide6.QtWebEngineWidgets import QWebEngineView
from PySide6.QtWidgets import QApplication

application = QApplication(sys.argv[:1])
view = QWebEngineView()
view.resize(1280, 1000)
view.setUrl(QUrl(sys.argv[1]))
view.show()
application.exec()
