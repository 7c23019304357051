"""What several stages advise. None of it is an option of ours: shapes are those of the file, whatever is scored."""

FIX_SIZES = "fix the sizes in the file, with onnxruntime.tools.make_dynamic_shape_fixed"
INFER_SHAPES = "python -m onnxruntime.tools.symbolic_shape_infer --auto_merge"
UNOPTIMISED = "fuse the model as it was exported, before ONNX Runtime's optimizer"
FOR_INFERENCE = "a dropout of training draws random numbers: export the model for inference"
FLOAT_FIRST = "fuse the float model, and quantize what is left"
