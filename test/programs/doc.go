// Package programs runs programs of other projects on a simulated GPU, natively and in shares, and checks what they say
// against the simulated driver's own record: results and listings are right, a share's end is a clean refusal, and
// everything is given back. hack/programs.sh unpacks the programs; `make test-programs` does both.
//
// The simulated driver executes no code. What a program has computed is compared where its kernel is one that the
// simulated driver knows by name; of all other kernels it counts that they are compiled, loaded, launched and take time.
package programs
