package vgpu

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// longest is of a name for people, in bytes. NVIDIA's have 40 at most.
	longest = 128
	// most bounds how many types a function has, and how many functions a GPU.
	most = 256
)

var (
	typeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	uuidName = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// ValidUUID tells whether a text is a UUID as sysfs has those of mediated devices.
func ValidUUID(text string) bool { return uuidName.MatchString(text) }

// Creatable reads the file creatable_vgpu_types: a heading, and a line "ID : NAME" for each type. What is no such line is left
// out, and so is a type that stands there again. Names may contain colons.
func Creatable(text string) []Type {
	var types []Type
	for line := range strings.Lines(text) {
		id, name, found := strings.Cut(line, ":")
		id = strings.TrimSpace(id)
		if !found || !isNumber(id) || slices.ContainsFunc(types, func(t Type) bool { return t.ID == id }) {
			continue
		}
		if types = append(types, Type{ID: id, Name: shown(name), Free: 1}); len(types) == most {
			break
		}
	}
	return types
}

// isNumber tells whether a text is the number of a type: 0 is none.
func isNumber(text string) bool {
	n, err := strconv.ParseUint(text, 10, 32)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}

// shown is a name for people without space around it, cut between letters.
func shown(name string) string {
	name = strings.TrimSpace(name)
	if len(name) <= longest {
		return name
	}
	cut := longest
	for cut > longest-utf8.UTFMax && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return strings.TrimSpace(name[:cut])
}

// MostOf is how many vGPUs of a type a GPU can have, by the file description, 0 where that is not told.
func MostOf(description string) int {
	most, _ := described(description)
	return most
}

// described reads the file description of a type: "num_heads=4, frl_config=60, framebuffer=4096M, …, max_instance=10". What is
// not told is 0.
func described(text string) (instances, mib int) {
	for field := range strings.SplitSeq(strings.ReplaceAll(text, "\n", ","), ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch key {
		case "max_instance":
			instances = count(value)
		case "framebuffer":
			if amount, is := strings.CutSuffix(value, "M"); is {
				mib = count(amount)
			}
		}
	}
	return instances, mib
}

// count reads a number of things, 0 where it is none.
func count(text string) int {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}
