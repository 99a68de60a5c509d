"""The study file: every key that a user may write, with its type, default and meaning.

The reference page of the documentation is generated from this module: the text below a field is
its explanation there.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from rlbhpc.study.fields import (
    ArmName,
    Checkpoints,
    Count,
    Entry,
    FilePath,
    ModelName,
    Name,
    PluginName,
    PromptName,
    RecipeName,
    RegisteredSet,
    Samples,
    Seed,
    SetName,
    SetNames,
    Share,
    StopAfter,
    Tag,
    Temperature,
    Text,
    Tokens,
    TopP,
    Words,
    reject_repeats,
)
from rlbhpc.study.keys import Power, Sampling, Turns

# Training recipes: which algorithm, on which data, with which settings.


# Options of how the work is cut and kept, of which what is learnt does not depend: they may change
# while a training goes on, and are no part of what a model is made by.
FREE_OPTIONS: Final = frozenset(
    {"micro_tokens", "recompute", "rollout_memory", "rollout_tensor_parallel", "save_every"}
)


class Teacher(Entry):
    """Responses that an arm of this study sampled, to learn from."""

    arm: ArmName
    """The arm that answered."""
    keep: Literal["right", "all"] = "right"
    """Only answers that were verified as right, or all."""
    per_problem: Count = 1
    """At most this many responses per problem, the lowest sample indices first."""


class Component(Entry):
    """A problem set of a mixture."""

    problems: SetName
    """The set. Its own `verifier` judges the responses."""
    prompt: PromptName | None = None
    """The prompt that its problems are put into; when left out, the recipe's."""
    weight: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    """Its share of the prompts of a step is this over the sum of all weights."""


class Stage(Entry):
    """Weights of a mixture from a step on."""

    from_: Annotated[Count, Field(alias="from")]
    """The first step that they hold in, until the next stage begins."""
    weights: Annotated[
        dict[SetName, Annotated[float, Field(gt=0, le=1_000_000)]], Field(min_length=1)
    ]
    """By problem set; one that is left out sits out."""


class Recipe(Entry):
    """One way to train.

    The keys that most recipes share stand here; what belongs to one algorithm goes under
    ``options``, which that algorithm checks. A key left out has the default of the algorithm and
    preset. The learning data are ``problems`` or a ``mixture`` (RL), or ``texts`` or ``teacher``
    (distillation).
    """

    algorithm: Annotated[PluginName, Tag("")]
    """The algorithm: grpo, ppo, rloo, sft …, or a file of your own."""
    preset: Name | None = None
    """Take the defaults of another framework: verl, trl, oat, openrlhf."""
    problems: SetName | None = None
    """The problem set whose problems are trained on."""
    prompt: PromptName | None = None
    """The prompt that the problems are put into."""
    mixture: list[Component] = Field(default_factory=list)
    """In place of `problems`: several sets, each with a weight and perhaps a prompt of its own."""
    schedule: list[Stage] = Field(default_factory=list)
    """Other weights of the mixture from later steps on."""
    texts: FilePath | None = None
    """A file of prompt–response pairs to learn from."""
    teacher: Teacher | None = None
    """Responses of an arm of this study to learn from, or with the option `hints` to begin with."""
    architecture: dict[str, Any] = Field(default_factory=dict)
    """The shape of a new model, for training from random weights: keys of its config.json."""
    seed: Seed = 0
    """Decides data order and rollouts; a list, such as `[0, 1, 2]`, makes one training per seed."""
    prompts_per_step: Annotated[Count | None, Tag("batch")] = None
    """Problems per training step."""
    samples_per_prompt: Annotated[Count | None, Tag("group")] = None
    """Rollouts per problem and step."""
    temperature: Temperature | None = None
    """Temperature of the rollouts."""
    max_tokens: Tokens | None = None
    """Longest rollout, in tokens."""
    learning_rate: Annotated[float, Field(gt=0, le=10), Tag("lr")] | None = None
    """Peak learning rate."""
    kl: Annotated[float, Field(ge=0, le=1_000), Tag("kl")] | None = None
    """Weight of the KL term; 0 loads no reference model."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Settings of this one algorithm. A list is a value here; to sweep write `{sweep: [1, 2]}`."""

    @property
    def is_supervised(self) -> bool:
        """Whether it learns from responses that are given, and not from its own."""
        return self.algorithm == "sft"

    @property
    def components(self) -> list[Component]:
        """The problem sets to learn from, each with the prompt that it is put into."""
        if self.problems is not None:
            return [Component(problems=self.problems, prompt=self.prompt)]
        components = []
        for component in self.mixture:
            prompt = component.prompt or self.prompt
            components.append(component.model_copy(update={"prompt": prompt}))
        return components

    @property
    def stages(self) -> list[tuple[int, list[float]]]:
        """The first step of each stage and its weights, in the order of the mixture."""
        stages = [(1, [component.weight for component in self.mixture])]
        for stage in sorted(self.schedule, key=lambda stage: stage.from_):
            weights = [stage.weights.get(component.problems, 0.0) for component in self.mixture]
            stages.append((stage.from_, weights))
        return stages

    @model_validator(mode="after")
    def _check_mixture(self) -> Recipe:
        """Refuse a mixture beside one set, a set without a prompt, and weights of no set."""
        if self.mixture and (self.is_supervised or self.problems is not None):
            raise ValueError("`mixture` is for RL, and goes without `problems`")
        names = reject_repeats([component.problems for component in self.mixture])
        if self.mixture and None in [component.prompt for component in self.components]:
            raise ValueError("a set of the `mixture` has no prompt; give the recipe a `prompt`")
        for stage in self.schedule:
            for name in stage.weights:
                if name not in names:
                    raise ValueError(f"`schedule` names {name}, which is not in the `mixture`")
        return self


# What a study asks for beyond samples: verification, scores, matched arms, analysis.


class Verification(Entry):
    """How answers are judged; `verification: lenient` is short for `decides: lenient` in it."""

    decides: Literal["strict", "lenient"] = "strict"
    """The verdict that counts: strict takes a stated answer, lenient else the last value. Both are
    stored; training takes the strict one.
    """
    timeout: Annotated[float, Field(gt=0, le=3_600)] = 3.0
    """CPU seconds for one answer in `rlbhpc audit` and in a verifier of your own. Programs have the
    time of their benchmark.
    """
    paper: bool = False
    """Also store the verdicts of the published study's lenient math grader, as variable `paper`."""
    unsafe: bool = False
    """Run programs even where no sandbox is available; every such verdict is marked."""

    @model_validator(mode="before")
    @classmethod
    def _read_other_forms(cls, value: Any) -> Any:
        """Read a word as what decides, and leave out ``code: sound``, which files of before say."""
        if isinstance(value, str):
            return {"decides": value}
        if isinstance(value, dict) and value.get("code") == "sound":
            return {key: setting for key, setting in value.items() if key != "code"}
        return value


class ScoreRequest(Entry):
    """Log-probability of texts under a model, from which perplexity follows.

    The texts are the responses of an arm, or those of a file; all steps of the model score them.
    """

    model: ModelName
    """The model that scores."""
    responses: ArmName | None = None
    """Score what this arm answered …"""
    texts: FilePath | None = None
    """… or the prompt–response pairs of this file."""
    per_problem: Count = 32
    """Responses per problem, the lowest sample indices first."""

    @model_validator(mode="after")
    def _one_source(self) -> ScoreRequest:
        if (self.responses is None) == (self.texts is None):
            raise ValueError("give either `responses` or `texts`")
        return self


class EntropyMatch(Entry):
    """A new arm at the temperature at which one arm has the entropy of another.

    The temperature is found by bisection on a seeded subset of the problems, until the mean token
    entropies differ by at most ``tolerance``.
    """

    arm: ArmName
    """The arm whose temperature is searched."""
    to: ArmName
    """The arm whose entropy it should have."""
    tolerance: Annotated[float, Field(gt=0, le=1), Tag("tol")] = 0.01
    """Largest difference of the entropies, in nats per token."""
    problems: Count = 64
    """Problems of the subset."""
    n: Samples = 8
    """Samples per problem of the subset."""
    seed: Seed = 0
    """Decides which problems form the subset."""


class Comparison(Entry):
    """Two arms to compare: the question of the study."""

    base: ArmName
    """The arm before training."""
    trained: ArmName
    """The arm after it."""


class Average(Entry):
    """Problem sets whose mean has a name, each with the same weight."""

    name: Text
    """The name, such as MAvg."""
    problem_sets: SetNames
    """The sets."""


def _read_audit_word(errors: Any) -> Any:
    """Read ``errors: audit`` as no rates of your own, so that those of the audit are taken."""
    return {} if errors == "audit" else errors


class Analysis(Entry):
    """What the report shows. Without this section: everything that the samples allow."""

    compare: list[Comparison] = Field(default_factory=list)
    """Pairs of arms; when empty, each trained arm with its base's arm of the same setting."""
    k: list[Count] = Field(default_factory=list)
    """The k of pass@k; when empty, the powers of two up to n."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Level of every interval."""
    bootstrap: Count = 1_000
    """Resamples for the bootstrap intervals."""
    statistics: list[PluginName] = Field(default_factory=list)
    """Statistics of your own: functions `statistic(n, c)` that give a value per problem."""
    aspects: list[PluginName] = Field(default_factory=list)
    """Figures and tables of your own: files with an `ASPECT`, as in `rlbhpc/report/aspects/`."""
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """Share of problems, and difference in pass@k, that counts as the same."""
    averages: list[Average] = Field(default_factory=list)
    """Means over problem sets."""
    errors: Annotated[
        dict[ArmName, Annotated[float, Field(ge=0, lt=1)]], BeforeValidator(_read_audit_word)
    ] = Field(default_factory=dict)
    """By arm, the known share of wrong responses called right; for arms left out, and with the word
    `audit`, what `rlbhpc audit` found.
    """
    cluster: Literal["level", "difficulty", "subject"] | None = None
    """Field that names a problem's source; intervals then resample sources, else problems."""


class Training(Entry):
    """How this study trains a model from another one."""

    from_: Annotated[ModelName | None, Field(alias="from")] = None
    """The model to start from, at its last checkpoint; when left out, random weights in the
    recipe's `architecture`.
    """
    recipe: RecipeName
    """How it is trained."""


class Endpoint(Entry):
    """A model behind an OpenAI-compatible server."""

    url: Annotated[
        str,
        Field(pattern=r"^https?://[A-Za-z0-9\[][A-Za-z0-9._~:/%+=\[\]-]*$"),
        Words("an address with http:// or https://, without a password; `key_env` names the key"),
    ]
    """Base address, up to and with `/v1`."""
    model: Text
    """The model's name at that server."""
    key_env: (
        Annotated[
            str,
            Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$"),
            Words("the name of an environment variable"),
        ]
        | None
    ) = None
    """Environment variable that holds the key. The key itself is never written to a file."""
    chat: bool = False
    """Send the prompt as a user's message instead of as text to continue."""
    context: Tokens | None = None
    """Maximum tokens of prompt and response together; `max_tokens` is checked against it."""
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = 32
    """Requests in flight at a time."""
    timeout: Annotated[float, Field(gt=0, le=86_400)] = 1800.0
    """Seconds without an answer after which a request is sent again."""
    top_logprobs: Annotated[int, Field(ge=0, le=100)] = 5
    """Most likely tokens to request, which bound the entropy; 0 requests no log-probabilities."""


class ModelEntry(Entry):
    """A model, or a line of checkpoints of one model.

    Exactly one of ``path``, ``train`` and ``endpoint`` says where it comes from. Step 0 of a line
    is what its training started from.
    """

    path: FilePath | None = None
    """Folder of a Hugging Face checkpoint. With `{step}` in it: a line of checkpoints."""
    train: Training | None = None
    """Trained by this study."""
    endpoint: Endpoint | None = None
    """Served elsewhere."""
    base: ModelName | None = None
    """The model that a `path` was trained from: the partner of comparisons, and its step 0."""
    steps: Checkpoints | None = None
    """The checkpoints of a line, as training steps."""
    hub: (
        Annotated[
            str,
            Field(pattern=r"^[\w.-]+/[\w.-]+(@[\w./-]+)?$"),
            Words("owner/name, or owner/name@revision"),
        ]
        | None
    ) = None
    """Where `path` can be downloaded from."""

    @model_validator(mode="after")
    def _one_source(self) -> ModelEntry:
        """Refuse a model without exactly one source, or with keys that don't fit its source.

        The source is a folder (``path``), a training, or a server (``endpoint``). A *line* is a
        series of checkpoints of one training: ``steps`` names them, and ``{step}`` in the path
        stands for each.
        """
        given = [key for key in ("path", "train", "endpoint") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of `path`, `train` and `endpoint`")
        if (self.train is not None or "{step}" in (self.path or "")) and self.steps is None:
            raise ValueError("a line of checkpoints needs `steps`, such as steps: [100, 200]")
        if self.steps is not None and self.train is None and "{step}" not in (self.path or ""):
            raise ValueError("`steps` needs `train`, or a `path` with {step} in it")
        if self.path is None and (self.base or self.hub):
            raise ValueError("`base` and `hub` go with `path`")
        if 0 in (self.steps or ()):
            raise ValueError("`steps` begin above 0; step 0 is the base")
        return self


class ProblemSet(Entry):
    """Problems from a local file, or generated."""

    set: RegisteredSet | None = None
    """A registered problem set, or a file of your own; when left out, this entry's name."""
    fields: dict[Name, Text] | None = None
    """For your own records: the fields that hold `question`, `gold`, `id` and extras."""
    verifier: PluginName | None = None
    """What judges the answers in place of the set's own: `math`, `judge`, …, or your own file."""
    path: FilePath | None = None
    """The file or folder; JSONL, JSON, Parquet or a `datasets` folder. Generated sets have none."""
    subset: str | None = None
    """Part of the set: a split of its files (`train`), a part that the set defines, a split by hash
    (`train[2000]`, `holdout[2000]`), or a chain of these (`train/holdout[500]`).
    """
    limit: Annotated[int, Field(ge=1, le=100_000_000), Tag("limit")] | None = None
    """Keep only this many problems, drawn by `seed`."""
    seed: Seed = 0
    """Decides the draw of `limit`, and what a generated set contains."""
    duplicates: Literal["refuse", "drop"] = "refuse"
    """Refuse a set that repeats a whole record, or drop and count the repeats."""
    probe: Annotated[float, Field(gt=0, lt=1), Tag("probe")] | None = None
    """Show only this share of each question's words; right is who completes it word for word. Take
    the prompt `bare`.
    """
    n: Samples | None = None
    """Samples per problem of this set, in place of the arms' own n."""
    stop_after: StopAfter | None = None
    """Right samples at which a problem of this set ends, in place of the arms' own."""
    ids: FilePath | None = None
    """Keep only the problems in this file, one id a line, as `rlbhpc select` writes them."""


class Shots(Entry):
    """Worked examples before the question."""

    from_: Annotated[SetName, Field(alias="from")]
    """The problem set that they come from; no arm answers it unless it names it."""
    n: Annotated[int, Field(ge=1, le=1_000)]
    """How many."""
    seed: Seed = 0
    """Decides which ones; a problem is never its own example."""


class PromptEntry(Entry):
    """A prompt that this study makes; arms and recipes name it as they name a registered one."""

    template: PromptName | None = None
    """A registered prompt or a `.txt` file; when left out, the question alone."""
    chat: ModelName | None = None
    """Put it into the chat format of this model's own files."""
    system: Text | None = None
    """The system turn; needs `chat`."""
    thinking: bool | None = None
    """Switch thinking on or off where the chat format can; needs `chat`."""
    tools: list[PluginName] | None = None
    """Tools that the chat format tells of, as `turns.tools` of the arm has them; needs `chat`."""
    shots: Shots | None = None
    """Worked examples before the question."""

    @model_validator(mode="after")
    def _needs_chat(self) -> PromptEntry:
        """Refuse settings of a chat format without the model that has the format."""
        if self.chat is None and (self.system is not None or self.thinking is not None):
            raise ValueError(
                "`system` and `thinking` belong to a chat format; name a model in `chat`"
            )
        if self.chat is None and self.tools is not None:
            raise ValueError("`tools` belong to a chat format; name a model in `chat`")
        if self.chat is None and self.shots is None:
            raise ValueError("give `chat`, `shots` or both; a template alone can be named itself")
        return self


class TurnsEntry(Entry):
    """Let responses call tools: a sample is then an episode of several turns."""

    limit: Annotated[int, Field(ge=1, le=1_000), Tag("turns")]
    """Most turns that the model may write."""
    tools: Annotated[list[PluginName], Field(min_length=1), AfterValidator(reject_repeats)]
    """What it may call: calculator, python, or a function of your own, `./mine.py:name`."""
    format: Literal["chat", "blocks"] = "chat"
    """How it calls: `chat` as its own chat format does, `blocks` by fenced blocks of a tool's name.
    """
    characters: Annotated[int, Field(ge=20, le=1_000_000)] = 2_000
    """Longest result of a call; of a longer one the middle is cut out."""
    told: bool = False
    """End each result with the number of turns that are left."""


class PowerEntry(Entry):
    """Samples of p^alpha, whose moves accept or reject another end of the response."""

    alpha: Annotated[float, Field(gt=0, le=100)]
    """The power; 1 leaves the model as it is."""
    moves: Annotated[int, Field(ge=1, le=10_000)]
    """Moves to try each time that the response has grown by a block."""
    block: Annotated[int, Field(ge=1, le=10_000_000)] = 192
    """Tokens by which it grows."""


class MoreSampling(Entry):
    """Sampling settings that are off unless they are set; names and meaning are vLLM's."""

    top_k: Annotated[int, Field(ge=0, le=10_000_000), Tag("k")] | None = None
    """Draw from this many of the likeliest tokens; 0 switches it off."""
    min_p: Annotated[float, Field(ge=0, le=1), Tag("minp")] | None = None
    """Draw from tokens with at least this share of the likeliest's probability; 0 is off."""
    repetition_penalty: Annotated[float, Field(gt=0, le=10), Tag("rep")] | None = None
    """Divide positive logits of seen tokens by this, multiply negative ones; 1 is off."""
    presence_penalty: Annotated[float, Field(ge=-2, le=2), Tag("pres")] | None = None
    """Subtract this from the logit of every token that the response has."""
    frequency_penalty: Annotated[float, Field(ge=-2, le=2), Tag("freq")] | None = None
    """Subtract this from a token's logit for every time that the response has it."""
    min_tokens: Annotated[int, Field(ge=0, le=10_000_000), Tag("min")] | None = None
    """No end token among this many first tokens; not together with `stop`."""
    stop_token_ids: (
        Annotated[list[Annotated[int, Field(ge=0, le=10_000_000)]], AfterValidator(reject_repeats)]
        | None
    ) = None
    """Tokens that end a response beside the model's own end tokens."""
    turns: TurnsEntry | None = None
    """Let responses call tools, and go on with the results; `max_tokens` is then for all turns."""
    power: PowerEntry | None = None
    """Sample from a power of the model's probabilities. It goes with temperature 1 and settings
    that leave all tokens, with `hf` or `vllm`.
    """


class SamplingDefaults(MoreSampling):
    """Defaults for every arm."""

    prompt: PromptName | None = None
    """A registered prompt; a file of your own, ending in `.txt`, with `{question}` in it; or
    `search` for the best of several.
    """
    temperature: Temperature | None = None
    """0 is greedy."""
    top_p: TopP | None = None
    """Nucleus sampling; 1 switches it off."""
    max_tokens: Tokens | None = None
    """Longest response, in tokens."""
    stop: list[Text] | None = None
    """Texts that end a response and are cut from it."""
    n: Samples | None = None
    """Samples per problem."""
    stop_after: StopAfter | None = None
    """End a problem's samples at this many right ones, or at n; 0 draws all n."""
    search_share: Share | None = None
    """With the prompt `search`: the share of an arm's samples that its tries take; 0.03."""
    problem_sets: SetNames | None = None
    """The sets to answer; when left out, all that no recipe trains on."""
    engine: PluginName | None = None
    """What generates, in place of `engine.name`."""


class ArmEntry(MoreSampling):
    """A model under one prompt and one sampling setting."""

    model: Annotated[ModelName, Tag("")]
    """The model that answers."""
    prompt: Annotated[PromptName, Tag("")]
    """A registered prompt; a file of your own, ending in `.txt`, with `{question}` in it; or
    `search` for the best of several.
    """
    temperature: Temperature
    """0 is greedy."""
    top_p: TopP = 1.0
    """Nucleus sampling; 1 switches it off."""
    max_tokens: Tokens
    """Longest response, in tokens."""
    stop: list[Text] = Field(default_factory=list)
    """Texts that end a response and are cut from it."""
    n: Samples
    """Samples per problem; a problem set's own `n` wins."""
    stop_after: StopAfter | None = None
    """End a problem at this many right samples; 0 draws all n. A set's own `stop_after` wins."""
    search_share: Share | None = None
    """With the prompt `search`: the share of the arm's samples that its tries take; 0.03."""
    steps: Checkpoints | None = None
    """The checkpoints to sample, 0 for the base; when left out, all `steps` of the model."""
    problem_sets: SetNames | None = None
    """The sets to answer; when left out, all that no recipe trains on."""
    engine: Annotated[PluginName | None, Tag("")] = None
    """What generates, in place of `engine.name`."""

    def sampling(self) -> Sampling:
        """Return the sampling setting of this arm as an engine takes it.

        The later settings (``MoreSampling``) are passed on only if they are given; the others keep
        the defaults that switch them off.
        """
        extras: dict[str, Any] = {name: getattr(self, name) for name in MoreSampling.model_fields}
        switched = {name: value for name, value in extras.items() if value is not None}
        if self.stop_token_ids is not None:
            switched["stop_token_ids"] = tuple(self.stop_token_ids)
        if self.turns is not None:
            switched["turns"] = Turns(
                **self.turns.model_dump() | {"tools": tuple(self.turns.tools)}
            )
        if self.power is not None:
            switched["power"] = Power(**self.power.model_dump())
        return Sampling(
            float(self.temperature),
            float(self.top_p),
            self.max_tokens,
            tuple(self.stop),
            **switched,
        )

    @model_validator(mode="after")
    def _one_end(self) -> ArmEntry:
        """Refuse a minimum length that the maximum length, or a stop text, would contradict."""
        if self.min_tokens and self.stop:
            raise ValueError("`min_tokens` goes without `stop`, which may end a response earlier")
        if (self.min_tokens or 0) > self.max_tokens:
            raise ValueError(f"`min_tokens` {self.min_tokens} is more than `max_tokens`")
        return self

    @model_validator(mode="after")
    def _whole_under_power(self) -> ArmEntry:
        """Refuse settings under which the acceptance of power sampling would not be exact."""
        draws_whole = self.temperature == 1 and self.sampling().draws_from_all_tokens
        if self.power and (self.stop or self.turns or not draws_whole):
            raise ValueError(
                "`power` needs temperature 1 and top_p 1, and goes without `stop`, `turns`, "
                "penalties and other cuts; its moves are exact for the whole distribution alone"
            )
        return self


class Engine(Entry):
    """What generates, and how it runs. It does not affect which samples are drawn."""

    name: PluginName = "vllm"
    """The engine of arms that name none: hf, vllm, or a file of your own."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Number format of the weights; auto takes the one in the checkpoint."""
    tensor_parallel: Annotated[int, Field(ge=1, le=1_024)] = 1
    """Devices that share one copy of the model."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the engine unchanged, such as rows: 512."""


class Storage(Entry):
    """What is kept of each response beside its text."""

    tokens: Literal["none", "sampled", "all"] = "sampled"
    """Token ids with log-probs and entropies: none, a seeded 1 % and rare right ones, or all."""


class StudyFile(Entry):
    """The one file that a user writes."""

    name: Name
    """Short name; also the name of the results folder."""
    question: Text | None = None
    """What the study asks, in a sentence; printed at the top of the report."""
    seed: Seed = 0
    """Decides every sample, together with the sample's key."""
    output: FilePath | None = None
    """Results folder on shared storage; when left out, `runs/<name>` beside this file."""
    models: Annotated[dict[Name, ModelEntry], Field(min_length=1)]
    """The models, by names of your choice."""
    problem_sets: Annotated[dict[Name, ProblemSet], Field(min_length=1)]
    """The problem sets."""
    prompts: dict[Name, PromptEntry] = Field(default_factory=dict)
    """Prompts of this study's own, with examples or in a model's chat format."""
    sampling: SamplingDefaults = SamplingDefaults()
    """Defaults for every arm."""
    arms: Annotated[dict[Name, ArmEntry], Field(min_length=1)]
    """What is sampled."""
    recipes: dict[Name, Recipe] = Field(default_factory=dict)
    """Ways to train, used under `models`."""
    verification: Verification = Verification()
    """How answers are judged."""
    scores: dict[Name, ScoreRequest] = Field(default_factory=dict)
    """Log-probabilities of texts under models, for perplexity."""
    match_entropy: dict[Name, EntropyMatch] = Field(default_factory=dict)
    """Arms at the temperature at which they are as random as another arm."""
    analysis: Analysis = Analysis()
    """What the report shows."""
    engine: Engine = Engine()
    """What generates, and how it is run."""
    storage: Storage = Storage()
    """What is kept of each response beside its text."""
    cluster: Name | None = None
    """An entry of the cluster table; when left out, the machine you are on decides."""
