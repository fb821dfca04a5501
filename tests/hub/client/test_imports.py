import subprocess
import sys


def test_client_starts_without_the_servers_libraries() -> None:
    heavy = ("flask", "sqlalchemy", "boto3", "psycopg", "apscheduler", "werkzeug", "rich", "pathspec")
    program = f"import sys, hub.cli.push, hub.cli.clone; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
