"""What is wrong with a rule file: stable codes, their titles, and what to do. Found by `fusion-cli rules lint`."""

CODES: dict[str, tuple[str, str]] = {
    "FUS001": (
        "The text does not parse",
        "A rule is header lines and functions in ONNX's text: "
        "`Name (inputs) => (outputs) { result = Operator <attribute = value> (inputs) }`.",
    ),
    "FUS002": (
        "Text outside of a function",
        "ONNX's parser passes over what follows a function, and a header line that no function follows has no effect.",
    ),
    "FUS003": ("Not a comment", "Comments start with `#`; `//` does not start one."),
    "FUS004": ("Not a name", "Names hold letters, digits and underscores; no hyphens, no dots."),
    "FUS005": (
        "Not a number of the rule",
        "A Constant in a rule is one number in float32 or an integer type, which matches the same number of any type "
        "and shape. There are no float16 literals. Larger constants are inputs of the rule, with a condition.",
    ),
    "FUS006": ("No rule", "The file holds no function."),
    "FUS007": ("Not text", "Rule files are UTF-8 text that whoever runs the command may read."),
    "FUS008": ("Too large", "A rule has at most a hundred calls. Parts of it can be idioms of their own."),
    "FUS010": ("Name not defined", "A call reads a name that neither the inputs nor a call before it defines."),
    "FUS011": (
        "Name defined twice",
        "Each name stands for one value, each output and each attribute of a call is there once.",
    ),
    "FUS012": ("Output never produced", "A rule has outputs, and a call (not a Constant) produces each."),
    "FUS013": (
        "Input not used",
        "An input that no call reads binds nothing. Optional inputs cannot be expressed: write an overload without.",
    ),
    "FUS014": ("Result not used", "No call reads the result and it is no output: the rule asks for a node in vain."),
    "FUS015": (
        "Never looked for",
        "Matching starts at one operator or idiom and goes along values to all others; this call cannot be reached.",
    ),
    "FUS016": (
        "Parameter of the rule",
        "A parameter is declared by its name alone, `Rule <axis> (x) => (y)`, and read as `@axis`. ONNX's parser takes "
        "an undeclared one without a word, and reads `<axis: int>` as 0.",
    ),
    "FUS017": (
        "Operator set not imported",
        "A function without a head can call ONNX's operators, those of `com.microsoft` and idioms. One that has a head "
        'names each domain that it calls in its own `opset_import`, `"pattern": 1` for idioms.',
    ),
    "FUS018": (
        "Type in a rule",
        "ONNX's parser takes types and shapes of inputs and outputs, but a pattern has none: `Rule (float[N] x)` would "
        "match any type. A condition says it: `# where: dtype(x) == float32 and rank(x) == 1`.",
    ),
    "FUS019": (
        "`rest` at another place",
        "`rest` stands for any further inputs, as the last input of an operator's call and as an input of the rule.",
    ),
    "FUS020": ("Unknown operator", "ONNX (or the domain named) has no operator of this name."),
    "FUS021": ("Unknown attribute", "The operator has no attribute of this name."),
    "FUS022": ("Attribute of another kind", "The attribute takes another kind of value: 1 is an integer, 1.0 is not."),
    "FUS023": (
        "Number of inputs or outputs",
        "No node of this operator looks like that. Axes are matched as attributes, however the model writes them; a "
        "last input named `rest` stands for any further ones.",
    ),
    "FUS024": (
        "Operator of another opset",
        "The operator is not in the opset that the rule imports. It is matched all the same; import the opset that "
        "has it, so that the rule can be tried.",
    ),
    "FUS025": ("Unknown idiom", "`pattern.NAME` is an idiom, or one of Pointwise, Rowwise and Move."),
    "FUS026": ("Idiom called otherwise", "No overload of the idiom has as many inputs or outputs."),
    "FUS027": ("Idioms in a circle", "Idioms are matched one after the other, so none can be defined by itself."),
    "FUS028": (
        "Axis counted from the front",
        "Rules see axes counted from the end, whatever the model writes: the last is -1. One pattern is for all ranks.",
    ),
    "FUS030": ("Unknown header line", "Header lines are described in [rules.md](rules.md)."),
    "FUS031": ("Header value", "The header line does not take this value."),
    "FUS032": ("Condition does not parse", "Conditions are expressions in Jinja's syntax."),
    "FUS033": ("Unknown predicate", "Conditions can call the predicates of [rules.md](rules.md) and nothing else."),
    "FUS034": (
        "Condition on an unknown name",
        "A condition holds for the function that follows it, and speaks of that function's inputs and results. One "
        "that speaks of anything else never holds.",
    ),
    "FUS035": ("No such template", "`kernel` names templates `NAME.cc.jinja`, `NAME.cu.jinja` in the rule's folder."),
    "FUS036": ("Unknown idiom in unless", "`unless` lists idioms, separated by commas."),
    "FUS037": (
        "Not a definition",
        "With `match: values` the function is one of one input, made of elementwise operators and numbers.",
    ),
    "FUS038": (
        "Kinds that do not go together",
        "A condition compares sizes with numbers, types with types and lists with lists; anything else is never equal. "
        "A value of the rule is neither: predicates ask about it.",
    ),
    "FUS040": ("Overload twice", "Two overloads describe the same graphs; one can go."),
    "FUS041": (
        "Overload with operands swapped",
        "Operands of commutative operators match in any order, so the first overload matches these graphs too.",
    ),
    "FUS042": (
        "Replaces another rule",
        "A rule of a known name takes the other's place: a note for a bundled rule, which may be meant, a warning "
        "for one of the same folder.",
    ),
    "FUS043": (
        "Name of another kind of rule",
        "A fusion cannot have an idiom's name, nor an idiom a fusion's: `pattern.NAME` and `--rules NAME` would not "
        "say which is meant.",
    ),
}
