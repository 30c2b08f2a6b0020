package abi

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// TestProtocolOfHeaders changes each header that is read by both sides: what a compiler sees of it changes the digest,
// what only people read does not.
func TestProtocolOfHeaders(t *testing.T) {
	headers := func(root fs.FS) []wireFile {
		wire, err := readWire(root)
		if err != nil {
			t.Fatal(err)
		}
		return wire
	}
	digest := func(wire []wireFile) uint64 {
		return remoteInterface{newRemoteLibrary(CUDA, parsedInterface(t, CUDA))}.protocol(wire)
	}
	repository := os.DirFS("..")
	have := headers(repository)
	base := digest(have)
	copied := fstest.MapFS{}
	for _, w := range have {
		text, err := fs.ReadFile(repository, w.path)
		if err != nil {
			t.Fatal(err)
		}
		copied[w.path] = &fstest.MapFile{Data: text}
	}
	if digest(headers(copied)) != base {
		t.Fatal("a copy of the headers has another protocol")
	}
	for path, f := range copied {
		text := f.Data
		f.Data = append([]byte("/* More,\n * for people. */\n\n"), text...)
		if digest(headers(copied)) != base {
			t.Errorf("%s: a comment changes the protocol", path)
		}
		f.Data = append([]byte("#define REMOTE_MORE 1\n"), text...)
		if digest(headers(copied)) == base {
			t.Errorf("%s: what it defines does not change the protocol", path)
		}
		f.Data = text
	}
	for _, name := range strings.Fields("attribute capture code due facts launch layout link_inside node occupancy options places record ring") {
		if copied["lib/remote/"+name+".h"] == nil {
			t.Errorf("the protocol does not cover lib/remote/%s.h", name)
		}
	}
	if copied["lib/abi/cuda/types.h"] == nil {
		t.Error("the protocol does not cover the structures of the driver")
	}
}
