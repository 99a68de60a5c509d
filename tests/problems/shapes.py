"""Records in the real shape of each set's public files, and ways to write them to disk."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Records = list[dict[str, Any]]

# Eight by four grey pixels.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAECAAAAACWpiEsAAAAEElEQVR4nGM8wQABTAw4GQAcDADQ5bJf7gAAAABJRU5ErkJggg=="
)


def dapo_record(prompt: str, answer: str, index: str) -> dict[str, Any]:
    return {
        "data_source": "math_dapo",
        "prompt": prompt,
        "solution": answer,
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": index},
    }


LCB_BASE: dict[str, Any] = {
    "question_title": "Find the Peaks",
    "question_content": "You are given {peaks}.",
    "platform": "leetcode",
    "question_id": "3221",
    "contest_id": "biweekly-118",
    "contest_date": "2024-11-30T00:00:00",
    "starter_code": "class Solution:\n    def f(self):\n        ",
    "difficulty": "easy",
    "public_test_cases": '[{"input": "[2,4,4]", "output": "[]", "testtype": "functional"}]',
    "private_test_cases": "eJxLTEpOAQAD0AFN" * 40,
    "metadata": '{"func_name": "findPeaks"}',
}

# Set name -> (records, their golds in order). Field names are those of the public files.
SHAPES: dict[str, tuple[Records, list[str]]] = {
    "gsm8k": (
        [
            {"question": "How much?", "answer": "He paid #### twice.\n#### 70,000"},
            {"question": "How many?", "answer": "3+4=<<3+4=7>>7\n#### 7"},
        ],
        ["70000", "7"],
    ),
    "math": (
        [
            {
                "problem": "Evaluate $1+1$.",
                "solution": r"It is $\boxed{2}$.",
                "answer": "2",
                "subject": "Algebra",
                "level": "Level 1",
                "unique_id": "train/algebra/1.json",
            },
            {
                "problem": "Evaluate $2/3$.",
                "solution": r"First $\boxed{x}$, then $\boxed{\frac{2}{3}}$",
                "level": "Level 5",
                "type": "Prealgebra",
            },
        ],
        ["2", r"\frac{2}{3}"],
    ),
    "math500": (
        [
            {
                "problem": "Convert $(0,3)$ to polar coordinates.",
                "solution": r"So $\boxed{\left( 3, \frac{\pi}{2} \right)}.$",
                "answer": r"\left( 3, \frac{\pi}{2} \right)",
                "subject": "Precalculus",
                "level": 2,
                "unique_id": "test/precalculus/807.json",
            }
        ],
        [r"\left( 3, \frac{\pi}{2} \right)"],
    ),
    "minerva": (
        [
            {
                "problem": "What energy?",
                "solution": r"Not $\boxed{1 \mathrm{eV}}$ but \[\boxed{4.5e33} \text{ erg/s}\]",
                "type": "Introduction to Astronomy (8.282J Spring 2006)",
                "idx": 1,
            }
        ],
        ["4.5e33"],
    ),
    "olympiadbench": (
        [
            {
                "id": 1606,
                "subfield": "Algebra",
                "context": None,
                "question": "Find all $x$.",
                "final_answer": ["$-2,1$"],
                "is_multiple_answer": True,
                "answer_type": "Numerical",
                "unit": None,
                "error": None,
            },
            {
                "id": 1610,
                "subfield": "Geometry",
                "context": "Let $T=3$.",
                "question": "Compute $T$.",
                "final_answer": ["3"],
                "is_multiple_answer": False,
                "answer_type": "Numerical",
                "unit": "cm",
                "error": "1e-2",
            },
        ],
        ["$-2,1$", "3"],
    ),
    "aime24": (
        [
            {
                "id": 60,
                "problem": "Every morning Aya walks.",
                "solution": r"\boxed{204}",
                "answer": "204",
                "url": "https://artofproblemsolving.com/wiki/1",
                "year": "2024",
            },
            {"id": 61, "problem": "Find it.", "answer": "033", "url": "https://aops/2"},
        ],
        ["204", "033"],
    ),
    "aime25": ([{"problem": "Find the sum of all bases.", "answer": "70", "id": "0"}], ["70"]),
    "aime26": ([{"problem_idx": 1, "answer": 277, "problem": "Find m + n."}], ["277"]),
    **dict.fromkeys(
        ("hmmt25", "hmmt26"),
        (
            [
                {
                    "problem_idx": 3,
                    "answer": "\\frac{9 \\sqrt{23}}{23}",
                    "problem": "How long is it?",
                    "problem_type": ["Algebra", "Geometry"],
                }
            ],
            ["\\frac{9 \\sqrt{23}}{23}"],
        ),
    ),
    "beyondaime": ([{"problem": "What is the least n?", "answer": 3_600_000}], ["3600000"]),
    "livemathbench": (
        [
            {
                "question": "Compute f(2).",
                "answer": "$\\frac{1}{2}$",
                "question_type": "problem-solving",
            },
            {
                "question": "Which one?",
                "answer": "B",
                "question_type": "choice",
                "options": ["A. 1", "B. 2"],
            },
        ],
        ["$\\frac{1}{2}$", "B"],
    ),
    "amc23": (
        [
            {"id": 0, "problem": "Cities A and B.", "answer": 27.0, "url": "https://aops/1"},
            {"id": 1, "question": "What is half?", "answer": 0.5, "url": "https://aops/2"},
        ],
        ["27", "0.5"],
    ),
    "dapo-math": (
        [
            dapo_record("How many primes are below 10?", "4", "b8a1c2d0"),
            dapo_record("Find $n$.", "34", "b8a1c2d1"),
        ],
        ["4", "34"],
    ),
    "mmlu-pro": (
        [
            {
                "question_id": 70,
                "question": "Typical boards?",
                "options": ["Down", "Up", "Both"],
                "answer": "C",
                "answer_index": 2,
                "cot_content": "",
                "category": "business",
                "src": "ori_mmlu-business_ethics",
            },
            {
                "question_id": 71,
                "question": "Which?",
                "options": ["1", "2"],
                "answer": "A",
                "answer_index": 0,
                "cot_content": "",
                "category": "math",
                "src": "stemez-Math",
            },
        ],
        ["C", "A"],
    ),
    "gpqa": (
        [
            {
                "Question": "Two states, which\ngap?\n",
                "Correct Answer": "1e-4 eV",
                "Incorrect Answer 1": "1e-11 eV",
                "Incorrect Answer 2": "1e-8 eV\n",
                "Incorrect Answer 3": "1e-9, eV",
                "Record ID": "rec06pnAkLOr2t2mp",
                "High-level domain": "Physics",
                "Subdomain": "Physics (general)",
            },
            {
                "Question": "Which product?",
                "Correct Answer": "11",
                "Incorrect Answer 1": "10",
                "Incorrect Answer 2": "12",
                "Incorrect Answer 3": "14",
                "Record ID": "rec0Arme2",
                "High-level domain": "Chemistry",
                "Subdomain": "Organic Chemistry",
            },
        ],
        ["A", "B"],
    ),
    "theoremqa": (
        [
            {
                "Question": "How many ways?",
                "Answer": "11760",
                "Answer_type": "integer",
                "Picture": None,
            },
            {"Question": "Is it?", "Answer": "True", "Answer_type": "bool", "Picture": None},
            {"Question": "Which?", "Answer": "(b)", "Answer_type": "option", "Picture": None},
            {
                "Question": "Seen?",
                "Answer": "1",
                "Answer_type": "integer",
                "Picture": {"bytes": "", "path": "images/a.png"},
            },
        ],
        ["11760", "True", "B"],
    ),
    "webinstruct-verified": (
        [
            {
                "id": "1083552",
                "question": "What is the sodium hydride base's role?",
                "answer": "deprotonation",
                "answer_type": "String",
                "category": "Chemistry",
                "difficulty": "University",
            },
            {
                "id": "1083553",
                "question": "Find it.",
                "answer": "\\frac{1}{2}",
                "answer_type": "Expression",
                "category": "Mathematics",
                "difficulty": "University",
            },
        ],
        ["deprotonation", "\\frac{1}{2}"],
    ),
    "rlpr-train": (
        [
            {
                "data_source": "WebInstruct-verified",
                "ability": "Business",
                "prompt": [
                    {"content": "A conversation between …", "role": "system"},
                    {"content": "What is the basis?", "role": "user"},
                ],
                "reward_model": {"ground_truth": "$19,000", "style": "rule"},
                "extra_info": {"index": 3, "split": "train"},
            },
        ],
        ["$19,000"],
    ),
    "omni-math-rule": (
        [
            {
                "domain": ["Mathematics -> Algebra"],
                "difficulty": 8.0,
                "problem": "Find all $f$.",
                "solution": "…",
                "answer": "f(x)=x",
                "source": "apmo_sl",
            },
            {
                "domain": ["Mathematics -> Number Theory"],
                "difficulty": 4.5,
                "problem": "Find $n$.",
                "solution": "…",
                "answer": "12",
                "source": "HMMT_2",
            },
        ],
        ["f(x)=x", "12"],
    ),
    "humaneval+": (
        [
            {
                "task_id": "HumanEval/0",
                "prompt": '\ndef close(a):\n    """Is it {close}?"""\n',
                "entry_point": "close",
                "canonical_solution": "    return True\n",
                "contract": "\n    assert a\n",
                "base_input": [[1.5], [2.0]],
                "plus_input": [[3.5]],
                "atol": 0,
            }
        ],
        [""],
    ),
    "mbpp+": (
        [
            {
                "task_id": "Mbpp/2",
                "prompt": '"""\nFind the shared elements.\nassert f((3,), (3,)) == (3,)\n"""\n',
                "entry_point": "f",
                "canonical_solution": "\ndef f(a, b):\n    return a\n",
                "contract": "",
                "base_input": [[[3], [3]]],
                "plus_input": [[[], []]],
                "atol": 0.0,
                "assertion": "assert f((3,), (3,)) == (3,)",
            }
        ],
        [""],
    ),
    "livecodebench": ([LCB_BASE], [""]),
    "geometry3k": (
        [{"images": [{"bytes": PNG, "path": None}], "problem": "<image>Find x.", "answer": "3"}],
        ["3"],
    ),
    "mathvista": (
        [
            {
                "pid": "2",
                "question": "What is the spring constant?",
                "query": "Hint: …\nQuestion: What is the spring constant?",
                "image": "images/2.jpg",
                "decoded_image": {"bytes": PNG, "path": "2.jpg"},
                "choices": None,
                "unit": "N/m",
                "precision": 1.0,
                "answer": "1.2",
                "question_type": "free_form",
                "answer_type": "float",
                "metadata": {"category": "math-targeted-vqa", "task": "textbook"},
            },
            {
                "pid": "3",
                "question": "Which?",
                "query": "…",
                "image": "images/3.jpg",
                "decoded_image": {"bytes": PNG, "path": "3.jpg"},
                "choices": ["A", "B"],
                "unit": None,
                "precision": None,
                "answer": "A",
                "question_type": "multi_choice",
                "answer_type": "text",
                "metadata": {"category": "general-vqa", "task": "figure"},
            },
        ],
        ["1.2"],
    ),
    "mathvision": (
        [
            {
                "id": "7",
                "question": "How many?\n<image1>",
                "options": [],
                "image": "images/7.jpg",
                "decoded_image": {"bytes": PNG, "path": "7.jpg"},
                "answer": "5",
                "solution": None,
                "level": 4,
                "subject": "counting",
            },
            {
                "id": "8",
                "question": "Which?\n<image1>",
                "options": ["A", "B"],
                "image": "images/8.jpg",
                "decoded_image": {"bytes": PNG, "path": "8.jpg"},
                "answer": "B",
                "solution": None,
                "level": 2,
                "subject": "counting",
            },
        ],
        ["5"],
    ),
}


def plain(records: Records, folder: Path) -> Records:
    """Records as JSON can hold them: dates as text, images as files beside."""
    plainer = []
    for record in records:
        record = dict(record)
        for key, value in record.items():
            if isinstance(value, datetime):
                record[key] = value.isoformat()
        images = record.pop("images", None) or [record.pop("decoded_image", None)]
        for number, image in enumerate(images):
            if image is not None:
                name = f"images/{record.get('id', record.get('pid', number))}.jpg"
                (folder / "images").mkdir(exist_ok=True)
                (folder / name).write_bytes(image["bytes"])
                record["image"] = name
        plainer.append(record)
    return plainer


def jsonl(records: Records, folder: Path) -> Path:
    file = folder / "test.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in plain(records, folder)))
    return file


def jsonl_gz(records: Records, folder: Path) -> Path:
    file = folder / "test.jsonl.gz"
    text = "\n\n".join(json.dumps(one, ensure_ascii=False) for one in plain(records, folder))
    file.write_bytes(gzip.compress(text.encode()))
    return file


def json_list(records: Records, folder: Path) -> Path:
    file = folder / "test.json"
    file.write_text(json.dumps(plain(records, folder), indent=1))
    return file


def table(records: Records) -> pa.Table:
    names = list(dict.fromkeys(name for record in records for name in record))
    return pa.table({name: [record.get(name) for record in records] for name in names})


def parquet(records: Records, folder: Path) -> Path:
    (folder / "data").mkdir()
    pq.write_table(table(records), folder / "data" / "test-00000-of-00001.parquet")
    return folder


def arrow_file(records: Records, folder: Path, name: str) -> Path:
    """One file as ``Dataset.save_to_disk`` writes it: the streaming format, and a state file."""
    folder.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(folder / name), "wb") as sink:
        content = table(records)
        with pa.ipc.new_stream(sink, content.schema) as stream:
            stream.write_table(content, max_chunksize=2)
    state = {"_data_files": [{"filename": name}], "_fingerprint": "c0ffee", "_split": "test"}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def datasets_folder(records: Records, folder: Path) -> Path:
    """A ``DatasetDict`` with the split ``test``."""
    root = folder / "saved"
    arrow_file(records, root / "test", "data-00000-of-00001.arrow")
    (root / "dataset_dict.json").write_text('{"splits": ["test"]}')
    return root


WRITERS: dict[str, Callable[[Records, Path], Path]] = {
    "jsonl": jsonl,
    "jsonl.gz": jsonl_gz,
    "json": json_list,
    "parquet": parquet,
    "datasets folder": datasets_folder,
}
