"""Run by torchrun in two processes: certificates of a sound stack and of one with a mistake; each rank saves both."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parent))
import conftest
from test_trl_certify import job_in

from agentr1_backend_trl.backend import TRLBackend


def main():
    rank, folder = os.environ["RANK"], Path(sys.argv[1])
    tiny = SimpleNamespace(model=conftest.build_model, tokenizer=conftest.build_tokenizer, env=conftest.Walk)
    job = job_in(folder / rank, tiny)
    found = {str(fault): TRLBackend().certify(job, n_groups=1, fault=fault).as_dict() for fault in (None, "stale")}
    (folder / f"certificate-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
