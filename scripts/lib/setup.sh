# Makes the virtual environment that scripts/test and scripts/demo run in.
#
# Source it without arguments: it then reads the caller's own, takes a leading
# "--python 3.13" off them, moves to the top of the repository and sets $venv.
#
# The stamp is written last and removed first, so an environment without one is incomplete
# (its installation was killed) and is made again from scratch.

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
wanted=""
case "${1-}" in
  --python) wanted="${2-}"; shift $(( $# < 2 ? 1 : 2 )); wanted="${wanted:-nothing}" ;;
  --python=*) wanted="${1#--python=}"; wanted="${wanted:-nothing}"; shift ;;
esac
if [[ -n "$wanted" && ! "$wanted" =~ ^3\.[0-9]+$ ]]; then
  echo "setup: --python got $wanted, expected a version such as 3.13" >&2
  exit 2
fi
venv=".venv${wanted:+-$wanted}"

# Whether this interpreter starts (a pyenv shim may not), has the wanted version, and can
# make environments (Debian splits ensurepip off).
usable_python() {
  command -v "$1" >/dev/null && "$1" - "$wanted" <<'PYTHON' 2>/dev/null
import ensurepip, sys, venv
wanted = sys.argv[1]
found = sys.version_info[:2]
sys.exit(found < (3, 11) or wanted not in ("", "%d.%d" % found))
PYTHON
}

find_python() {
  local candidate names=(python3 python python3.14 python3.13 python3.12 python3.11)
  [[ -z "$wanted" ]] || names=("python$wanted" "${names[@]}")
  for candidate in "${names[@]}" \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"${wanted:-3.}"*/bin/python; do
    if usable_python "$candidate"; then echo "$candidate"; return; fi
  done
  echo "setup: found no Python ${wanted:->= 3.11} with venv and ensurepip, neither on" \
    "PATH nor in ${PYENV_ROOT:-~/.pyenv}/versions; install one (on Debian:" \
    "python3 and python3-venv)" >&2
  return 1
}

is_set_up() {
  [[ -x "$venv/bin/python" && -f "$venv/stamp" && "$(<"$venv/stamp")" == "$stamp" ]]
}

set_up() {
  if [[ ! -x "$venv/bin/python" || ! -f "$venv/stamp" ]]; then
    local python
    python="$(find_python)"
    echo "setup: making $venv with $("$python" --version) ($(command -v "$python"))" >&2
    "$python" -m venv --clear "$venv"
  fi
  rm -f "$venv/stamp"
  echo "setup: installing jobpool, editable, and its development tools into $venv" >&2
  # -qq: errors only, not pip's warnings about the machine's configuration.
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check -e '.[dev]'
  echo "$stamp" >"$venv/stamp"
}

# The directory is part of the stamp: an environment that was moved does not work.
stamp="$PWD $(cksum <pyproject.toml)"
if ! is_set_up; then
  exec 9>"$venv.lock" # two at once would undo each other's work
  if command -v flock >/dev/null; then flock 9; fi
  is_set_up || set_up
  exec 9>&-
fi
# If PYTHONDONTWRITEBYTECODE is set, each of the thousands of processes to come would
# compile all of jobpool again, which is half the cost of a supervisor's start.
"$venv/bin/python" -m compileall -qq src tests scripts/lib || true # its user complains
