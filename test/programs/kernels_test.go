package programs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// texts are those of kernels in a program's file: each begins with the version of its language and ends with a zero.
func texts(t *testing.T, file string) (found []string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for part := range bytes.SplitSeq(content, []byte{0}) {
		if text := string(part); strings.HasPrefix(text, ".version ") && strings.Contains(text, ".entry") {
			found = append(found, text)
		}
	}
	return found
}

// NVIDIA's assembler takes the kernels of our own programs, which no card has run yet, and leaves the work of a fixed
// amount in: it drops a loop that has no effect.
func TestKernelsCompile(t *testing.T) {
	s := setting(t)
	bench, probe := filepath.Join(string(s.Tree), "bin/gpubench"), filepath.Join(string(s.Tree), "test/gpu/gpuprobe")
	late, err := exec.Command(probe, "code").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{"gpubench": texts(t, bench), "gpuprobe": texts(t, probe), "gpuprobe late": {string(late)}}
	for name, list := range all {
		if len(list) == 0 {
			t.Errorf("%s has no kernels: this test finds nothing in it", name)
		}
		for _, text := range list {
			for _, architecture := range []string{"sm_70", "sm_75", "sm_80"} {
				compiled := compile(t, s, architecture, text)
				if !strings.Contains(text, ".entry divvy_loop(") {
					continue
				}
				if n := instructions(t, compiled, "divvy_loop"); n < 8 {
					t.Errorf("%s, %s: divvy_loop has %d instructions: its loop is gone", name, architecture, n)
				}
			}
		}
	}
}

// compile assembles a text, and returns the file that it makes.
func compile(t *testing.T, s Setting, architecture, text string) (file string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "kernels.ptx")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file = source + ".cubin"
	ptxas := filepath.Join(s.Folder, "cuda/nvidia/cuda_nvcc/bin/ptxas")
	if said, err := exec.Command(ptxas, "-arch="+architecture, "-o", file, source).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", architecture, err, said)
	}
	return file
}

// instructions counts those of a kernel that do something. An instruction has 16 bytes since Volta, and its first 12 bits
// say what it does; what fills the rest of a kernel's code does nothing.
func instructions(t *testing.T, file, kernel string) (n int) {
	t.Helper()
	const length, nothing = 16, 0x918
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const version = 20 // offset of e_version, where this assembler writes its own
	binary.LittleEndian.PutUint32(content[version:], uint32(elf.EV_CURRENT))
	compiled, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	section := compiled.Section(".text." + kernel)
	if section == nil {
		t.Fatalf("no code of %s", kernel)
	}
	code, err := section.Data()
	if err != nil {
		t.Fatal(err)
	}
	for ; len(code) >= length; code = code[length:] {
		if binary.LittleEndian.Uint64(code)&0xfff != nothing {
			n++
		}
	}
	return n
}
