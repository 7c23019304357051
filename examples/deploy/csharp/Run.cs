// Runs a fused model with its kernels on ones: dotnet run -- MODEL LIBRARY INPUT OUTPUT SIZE ...
using System.Globalization;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

if (args.Length < 4)
{
    Console.Error.WriteLine("usage: MODEL LIBRARY INPUT OUTPUT SIZE ...");
    return 2;
}
int[] shape = args.Skip(4).Select(int.Parse).ToArray();
using var options = new SessionOptions();
options.RegisterCustomOpLibrary(args[1]);
using var session = new InferenceSession(args[0], options);
float[] ones = Enumerable.Repeat(1f, shape.Aggregate(1, (product, size) => product * size)).ToArray();
var inputs = new[] { NamedOnnxValue.CreateFromTensor(args[2], new DenseTensor<float>(ones, shape)) };
using var results = session.Run(inputs, new[] { args[3] });
foreach (float value in results.First().AsEnumerable<float>())
    Console.WriteLine(value.ToString("F6", CultureInfo.InvariantCulture));
return 0;
