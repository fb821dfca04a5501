"""Interim: the part of `storage` that the readiness probe needs."""
# ruff: noqa
from dataclasses import dataclass
import boto3, botocore
from botocore.config import Config


class StorageError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class S3Settings:
    endpoint_url: str
    public_endpoint_url: str | None
    region: str
    bucket: str
    access_key: str
    secret_key: str


class S3Store:
    def __init__(self, s):
        self.b = s.bucket
        self.c = boto3.client("s3", endpoint_url=s.endpoint_url, region_name=s.region, aws_access_key_id=s.access_key, aws_secret_access_key=s.secret_key, config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=10))

    def _w(self, f):
        try:
            return f()
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as e:
            if "BucketAlready" in str(e):
                return None
            raise StorageError(str(e))

    def ensure_bucket(self):
        self._w(lambda: self.c.create_bucket(Bucket=self.b))

    def put(self, k, body):
        self._w(lambda: self.c.put_object(Bucket=self.b, Key=k, Body=body))

    def get_range(self, k, o, n):
        return self._w(lambda: self.c.get_object(Bucket=self.b, Key=k)["Body"].read())
