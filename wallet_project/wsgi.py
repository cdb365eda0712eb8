"""The WSGI entry point that the web server loads."""

import os
import re
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "wallet_project.settings")

_BOUNDARY = re.compile(r'boundary=("[^"]*"|[^\s;]+)', re.IGNORECASE)
_django = get_wsgi_application()


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Django, without the parameters of `Content-Type` but for a form's boundary: all that we read is UTF-8.

    Django decodes the query string by the charset that stands there, and falls over one that is none before anything
    of ours could answer.
    """
    content_type: str = environ.get("CONTENT_TYPE", "")
    if ";" in content_type:
        type_, _, parameters = content_type.partition(";")
        boundary = _BOUNDARY.search(parameters)
        environ["CONTENT_TYPE"] = f"{type_}; {boundary[0]}" if boundary else type_
    return _django(environ, start_response)
