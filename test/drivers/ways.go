package drivers

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/driver"
)

// Way is one in which a program comes to the driver's functions.
type Way struct {
	Name string
	// program is one of kinds, and env is added to its environment; in both, and in args, %L is the library's name, %N
	// the pair's folder Native, %F the driver's own file and %B the library between.
	program string
	env     []string
	args    [2]string
	// covered is true where the way leads past LD_LIBRARY_PATH, so that only a share with a mount namespace can hold it.
	// weak is true where the loader prefers a strong definition to an earlier weak one. All that ours does something in
	// is strong; its weak ones jump to the driver's.
	covered, weak bool
}

// kinds are how ways.c is compiled. With -DLINKED the compiler's last words are the library itself.
var kinds = map[string][]string{
	"plain":   {},
	"between": {"-DBETWEEN", "-shared", "-fPIC"},
	"static":  {"-static-pie"},
	"linked":  {"-DLINKED", "%N/%L"},
	"now":     {"-DLINKED", "%N/%L", "-Wl,-z,now"},
	"runpath": {"-DLINKED", "%N/%L", "-Wl,--enable-new-dtags,-rpath,%N"},
	"rpath":   {"-DLINKED", "%N/%L", "-Wl,--disable-new-dtags,-rpath,%N"},
	"before":  {"-DLINKED", "-Wl,--no-as-needed", "%B", "%N/%L"},
	"after":   {"-DLINKED", "-Wl,--no-as-needed", "%N/%L", "%B"},
}

// Ways are all that are compared, for both libraries.
var Ways = []Way{
	{Name: "dlopen, dlsym", program: "plain", args: [2]string{"handle", "%L"}},
	{Name: "dlopen RTLD_LAZY", program: "plain", args: [2]string{"lazy", "%L"}},
	{Name: "dlopen RTLD_DEEPBIND", program: "plain", args: [2]string{"deep", "%L"}},
	{Name: "dlopen without .1", program: "plain", args: [2]string{"handle", "%P"}},
	{Name: "dlopen of the driver's file", program: "plain", args: [2]string{"handle", "%F"}, covered: true},
	{Name: "dlsym RTLD_DEFAULT", program: "plain", args: [2]string{"default", "%L"}},
	{Name: "dlvsym", program: "plain", args: [2]string{"version", "%L"}},
	{Name: "dlvsym RTLD_DEFAULT", program: "plain", args: [2]string{"default-version", "%L"}},
	{Name: "dlmopen into a new namespace", program: "plain", args: [2]string{"namespace", "%L"}},
	{Name: "dlmopen beside dlopen", program: "plain", args: [2]string{"second", "%L"}},
	{Name: "dlmopen of the driver's file", program: "plain", args: [2]string{"namespace", "%F"}, covered: true},
	{Name: "linked", program: "linked", args: [2]string{"linked", "%L"}},
	{Name: "linked, -z now", program: "now", args: [2]string{"linked", "%L"}},
	{Name: "linked, LD_BIND_NOW", program: "linked", env: []string{"LD_BIND_NOW=1"}, args: [2]string{"linked", "%L"}},
	{Name: "linked, LD_LIBRARY_PATH of the driver's folder", program: "linked", env: []string{"LD_LIBRARY_PATH=%N"}, args: [2]string{"linked", "%L"}, covered: true},
	{Name: "linked, RUNPATH, no LD_LIBRARY_PATH", program: "runpath", env: []string{"LD_LIBRARY_PATH="}, args: [2]string{"linked", "%L"}, covered: true},
	{Name: "linked, RPATH", program: "rpath", args: [2]string{"linked", "%L"}, covered: true},
	{Name: "LD_PRELOAD of the driver's file", program: "plain", env: []string{"LD_PRELOAD=%F"}, args: [2]string{"linked", "%L"}, covered: true},
	{Name: "RTLD_NEXT from a library between", program: "before", args: [2]string{"next", "%L"}},
	{Name: "RTLD_NEXT from a preloaded library", program: "linked", env: []string{"LD_PRELOAD=%B"}, args: [2]string{"next", "%L"}},
	{Name: "dlvsym RTLD_NEXT from a library between", program: "before", args: [2]string{"next-version", "%L"}},
	{Name: "a preloaded library's constructor", program: "plain", env: []string{"LD_PRELOAD=%B", "ASK_EARLY=handle:%L"}, args: [2]string{"handle", "%L"}},
	{Name: "the constructor of a library opened later", program: "plain", env: []string{"ASK_EARLY=handle:%L"}, args: [2]string{"load", "%B"}},
	{Name: "16 threads at once", program: "plain", args: [2]string{"threads", "%L"}},
	{Name: "LD_DYNAMIC_WEAK", program: "linked", env: []string{"LD_DYNAMIC_WEAK=1"}, args: [2]string{"handle", "%L"}, weak: true},
	{Name: "dlopen in a static program", program: "static", args: [2]string{"handle", "%L"}, weak: true},
}

// behind looks from a library that stands after the driver's in the program's list. With the driver alone nothing follows.
// In a share the driver's own library does, because ours depends on it, so this is the one way that is not the same.
var behind = Way{Name: "RTLD_NEXT from a library behind the driver's", program: "after", args: [2]string{"next", "%L"}}

// CompareWay looks all names up in one way, with the driver alone and in shares: the same must be found, and what our
// library has must be ours.
func (p *Pair) CompareWay(ctx context.Context, w Way, library driver.Library) (Comparison, error) {
	result := Comparison{Question: Question{Library: library, Name: w.Name}}
	names, err := union(p.tree.Library(string(library)), filepath.Join(p.Native, string(library)))
	if err != nil {
		return result, err
	}
	native, err := p.walk(ctx, w, library, p.Alone, names)
	if err != nil {
		return result, err
	}
	for _, place := range []Place{p.Env, p.Covered} {
		if w.covered && place.Name == p.Env.Name {
			continue
		}
		got, err := p.walk(ctx, w, library, place, names)
		if err != nil {
			return result, err
		}
		want, err := p.expected(native, place, library, w.weak)
		if err != nil {
			return result, err
		}
		one, err := compare(result.Question, want, got)
		if err != nil {
			return result, err
		}
		result.add(one, place.Name+": ")
	}
	return result, nil
}

// expected is what a share must answer where the driver alone gives these answers: a name that our library has is there
// in our file, and all else is the driver's.
func (p *Pair) expected(native []string, place Place, library driver.Library, weak bool) ([]string, error) {
	ours, err := defined(filepath.Join(place.Dir, string(library)), weak)
	if err != nil {
		return nil, err
	}
	var want []string
	for _, line := range native {
		name, answer, _ := strings.Cut(line, " ")
		if answer == "driver" && ours[name] {
			line = name + " ours"
		}
		want = append(want, line)
	}
	return want, nil
}

// defined are the names of a library, without the weak ones if only strong ones count.
func defined(path string, strong bool) (map[string]bool, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read our names: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("read our names: %w", err)
	}
	names := map[string]bool{}
	for _, s := range symbols {
		names[s.Name] = s.Section != elf.SHN_UNDEF && (!strong || elf.ST_BIND(s.Info) == elf.STB_GLOBAL)
	}
	return names, nil
}

// walk returns what a place answers in a way, with files named "ours" and "driver" instead of their inodes.
func (p *Pair) walk(ctx context.Context, w Way, library driver.Library, place Place, names []string) ([]string, error) {
	program, err := p.kind(w.program, library)
	if err != nil {
		return nil, err
	}
	expand, err := p.expander(library)
	if err != nil {
		return nil, err
	}
	// Set by env(1), so that they are the program's alone, and win over the share's own.
	argv := []string{"env"}
	for _, entry := range w.env {
		argv = append(argv, expand(entry))
	}
	argv = append(argv, program, expand(w.args[0]), expand(w.args[1]))
	cmd := place.Command(ctx, nil, argv...)
	cmd.Stdin = strings.NewReader(strings.Join(names, "\n") + "\n")
	var said bytes.Buffer
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("look for names by %s, %s: %w: %s", w.Name, place.Name, err, said.String())
	}
	files, err := p.inodes(place, library)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, line := range lines {
		name, answer, _ := strings.Cut(line, " ")
		if file, known := files[answer]; known {
			lines[i] = name + " " + file
		}
	}
	return lines, nil
}

// inodes names the two files in which a function can lie.
func (p *Pair) inodes(place Place, library driver.Library) (map[string]string, error) {
	file, err := p.file(library)
	if err != nil {
		return nil, err
	}
	named := map[string]string{file: "driver"}
	if place.Dir != "" {
		named[filepath.Join(place.Dir, string(library))] = "ours"
	}
	found := map[string]string{}
	for path, name := range named {
		var stat syscall.Stat_t
		if err := syscall.Stat(path, &stat); err != nil {
			return nil, fmt.Errorf("tell files apart: %w", err)
		}
		found[strconv.FormatUint(stat.Ino, 10)] = name
	}
	return found, nil
}

// expander replaces what Way describes.
func (p *Pair) expander(library driver.Library) (func(string) string, error) {
	file, err := p.file(library)
	if err != nil {
		return nil, err
	}
	return strings.NewReplacer("%L", string(library), "%P", library.Bare(), "%N", p.Native, "%F", file,
		"%B", filepath.Join(p.dir, "between-"+library.Bare())).Replace, nil
}

// kind compiles ways.c in one of kinds, once.
func (p *Pair) kind(name string, library driver.Library) (string, error) {
	program := filepath.Join(p.dir, name+"-"+library.Bare())
	if _, err := os.Stat(program); err == nil {
		return program, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("look for a program that asks: %w", err)
	}
	expand, err := p.expander(library)
	if err != nil {
		return "", err
	}
	flags := slices.Clone(kinds[name])
	for i := range flags {
		flags[i] = expand(flags[i])
	}
	if library == driver.NVML {
		flags = append(flags, "-DLINKED_NVML")
	}
	if name != "between" {
		if _, err := p.kind("between", library); err != nil {
			return "", err
		}
	}
	return program, build(program, "ways.c", flags...)
}
