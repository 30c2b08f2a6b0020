package abi

// remoteFolder is where the C files of client and worker go.
const remoteFolder = "lib/remote/generated/"

// remoteOutputs are the files with which calls are made from another machine, and the page that lists them.
func remoteOutputs(ri remoteInterface, wire []wireFile) []File {
	files := []File{
		{"lib/remote/generated/numbers/numbers.h", ri.numbersHeader(wire)},
		{"lib/remote/generated/numbers/numbers.c", ri.numbersSource()},
		{remoteFolder + "decode.h", ri.decodeHeader()},
		{remoteFolder + "decode.c", ri.decodeSource()},
		{remoteFolder + "seeds.txt", ri.seeds()},
		{"docs/remote-functions.md", ri.table()},
	}
	for _, r := range ri {
		prefix := remoteFolder + r.lower()
		files = append(files,
			File{prefix + "_by_hand.inc", r.byHand()},
			File{prefix + "_stubs.h", r.stubsHeader()},
			File{prefix + "_stubs.c", r.stubs()},
			File{prefix + "_decode.h", r.decodeHeader()},
			File{prefix + "_decode.c", r.decoders()},
			File{"lib/remote/test/generated/" + r.lower() + "_exercises.c", r.exercises()},
		)
	}
	return files
}
