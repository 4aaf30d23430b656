"""What `data_pipeline.bucket` uses of google-cloud-storage (extra [gcs]): the client and its errors."""

import functools
import os

from google.api_core.exceptions import Forbidden, GoogleAPIError, Unauthorized
from google.api_core.exceptions import NotFound as NotFound
from google.api_core.exceptions import PreconditionFailed as PreconditionFailed
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError
from google.cloud.storage import Client
from google.cloud.storage.exceptions import DataCorruption
from google.cloud.storage.retry import DEFAULT_RETRY as DEFAULT_RETRY

REFUSED = (Forbidden, Unauthorized, DefaultCredentialsError, RefreshError)
"""The bucket may not be used."""
UNREACHABLE = (GoogleAPIError, TransportError, DataCorruption)
"""The bucket did not answer, or not as it should, however often it was asked."""


@functools.cache
def client() -> Client:
    """The client of this process: of Cloud Storage, or of the emulator that STORAGE_EMULATOR_HOST names."""
    if "STORAGE_EMULATOR_HOST" in os.environ:
        return Client(project="none", credentials=AnonymousCredentials())
    return Client()
