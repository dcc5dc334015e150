#!/usr/bin/env bash
# Runs the tests of the plugin on every supported pytest, each in an environment of its own.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for version in 8.4 9.0 9.1 9.2; do
    echo "== pytest $version"
    python3 -m venv "$work/$version"
    "$work/$version/bin/pip" install --quiet torch==2.13.0 "$root[test]" "pytest==$version.*"
    (cd "$root/tests" && "$work/$version/bin/pytest" -q test_collection.py test_report.py test_settings.py test_cost.py)
done
