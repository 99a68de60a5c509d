"""Texts that would act if a page took them for markup: vectors by category, in many surroundings."""

from __future__ import annotations

#: Each would set ``window.ran``, load something or leave the page, were it markup.
VECTORS = {
    "script": ["<script>window.ran=1</script>", "<ScRiPt src=//x.invalid/a.js></sCrIpT>",
               "<script\n>window.ran=1</script\n>", "</pre></main><script>window.ran=1</script>"],
    "end of our elements": ["</script><script>window.ran=1</script>", "</style><img src=x onerror=window.ran=1>",
                            "</title><svg onload=window.ran=1>", "</textarea></details><b onclick=window.ran=1>x</b>"],
    "event": ["<img src=x onerror=window.ran=1>", "<body onload=window.ran=1>",
              "<input autofocus onfocus=window.ran=1>", "<details open ontoggle=window.ran=1>"],
    "svg and MathML": ["<svg><script>window.ran=1</script></svg>", "<svg/onload=window.ran=1>",
                       "<math><mtext><img src=x onerror=window.ran=1></mtext></math>",
                       "<math href='javascript:window.ran=1'>x</math>",
                       "<svg><animate onbegin=window.ran=1 attributeName=x dur=1s>"],
    "address": ["<a href='javascript:window.ran=1'>x</a>", "[x](javascript:window.ran=1)",
                "<iframe src='javascript:window.ran=1'></iframe>", "<form action='javascript:window.ran=1'><button>",
                "<object data='data:text/html,<script>window.ran=1</script>'>"],
    "page": ["<base href='//x.invalid/'>", "<meta http-equiv=refresh content='0;url=//x.invalid'>",
             "<link rel=stylesheet href=//x.invalid/a.css>", "<style>*{display:none}</style>"],
    "attribute": ["\" onmouseover=window.ran=1 x=\"", "' onfocus='window.ran=1' autofocus='",
                  "\"><script>window.ran=1</script>", "`-window.ran=1-`"],
    "encoded": ["&lt;script&gt;window.ran=1&lt;/script&gt;", "&#x3c;script&#x3e;window.ran=1",
                "\\u003cscript\\u003ewindow.ran=1", "%3Cscript%3Ewindow.ran=1%3C/script%3E", "<scr\0ipt>window.ran=1</scr\0ipt>"],
    "comment": ["<!--><script>window.ran=1</script>", "<![CDATA[<script>window.ran=1</script>]]>",
                "<!--[if gte IE 4]><script>window.ran=1</script><![endif]-->"],
    "template": ["{{ 7 * 7 }}{{ site.__class__ }}", "{% for x in ().__class__.__base__.__subclasses__() %}x{% endfor %}",
                 "${window.ran=1}", "{{constructor.constructor('window.ran=1')()}}"],
    "LaTeX": ["$\\href{javascript:window.ran=1}{x}$", "$\\style{position:fixed;inset:0}{x}$",
              "$\\class{x\" onclick=\"window.ran=1}{x}$", "$\\text{<script>window.ran=1</script>}$",
              "\\[\\color{\"onload=window.ran=1}x\\]", "$\\unicode{x3c}script\\unicode{x3e}$", "$&#x3c;script&#x3e;$"],
    "order of letters": ["\u202e<script>window.ran=1</script>", "\u2066\u200f\ufeff<b>", "\x1b[31mred\x07"],
}  # fmt: skip
SURROUNDINGS = (
    "{}", "Before {} behind, so \\boxed{{42}}.", "\\boxed{{{}}}", "<think>{}</think>The answer is 42.",
    "```python\nprint('{}')\n```", "```html\n{}\n```", "$x = {}$ and $$y = {}$$", "#### {}", "<answer>{}</answer>",
)  # fmt: skip


def texts() -> list[str]:
    """Every vector in every surrounding."""
    vectors = [vector for category in VECTORS.values() for vector in category]
    return [around.format(*[vector] * 2) for vector in vectors for around in SURROUNDINGS]
