"""Compares answers with their schema: each must fit it, and have nothing that it does not name.

judge.py SCHEMA < ANSWERS

Prints the commands that have answered. Complaints are on standard error; exit 1 then.
"""

import json
import sys

import jsonschema


def closed(schema):
    """The schema, with nothing in objects but what it names: others may read it as it grows."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        schema["additionalProperties"] = False
    return schema


def values(text):
    decoder, at = json.JSONDecoder(), 0
    while text := text[at:].strip():
        value, at = decoder.raw_decode(text)
        yield value


schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
schema = closed(schema)
complaints, answer, asked = [], "", set()
for line in sys.stdin:
    if not line.startswith("@@ "):
        answer += line
        continue
    name, code = line[3:].rstrip().rsplit(" ", 1)
    asked.add(name)
    validator = jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{name}"})
    try:
        found = list(values(answer))
    except json.JSONDecodeError as error:
        complaints.append(f"{name}: no JSON: {error}: {answer[:200]!r}")
        found = []
    else:
        if not found:
            complaints.append(f"{name}: no answer, exit {code}")
    for value in found:
        for error in validator.iter_errors(value):
            complaints.append(f"{name}: {'/'.join(map(str, error.absolute_path))}: {error.message[:300]}")
        if name == "failure" and value["error"]["code"] != int(code):
            complaints.append(f"{name}: says {value['error']['code']}, and exit {code}")
        if isinstance(value, dict) and value.get("schema") != 1:
            complaints.append(f"{name}: of schema {value.get('schema')}")
    answer = ""
print("\n".join(sorted(asked)))
for complaint in complaints:
    print(complaint, file=sys.stderr)
sys.exit(1 if complaints else 0)
