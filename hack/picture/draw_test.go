package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// The pictures show what the commands print.
func TestPicturesAreCurrent(t *testing.T) {
	for _, s := range screens {
		text, err := s.read(root)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, folder, s.picture))
		if err != nil || string(got) != draw(text, s.title, s.about) {
			t.Errorf("%s is not what %s shows (%v): run make pictures", s.picture, s.file, err)
		}
	}
}

func TestDraw(t *testing.T) {
	got := draw("a<\x1b[1mb\x1b[m \x1b[31;2mc\x1b[m\n\n  d\n", "A & B", "about")
	for _, want := range []string{
		"<title id=\"title\">A &amp; B</title>",
		`<text x="12" y="25" textLength="16" xml:space="preserve">a&lt;</text>`,
		`<text x="28" y="25" textLength="8" xml:space="preserve" class="b">b</text>`,
		`<text x="44" y="25" textLength="8" xml:space="preserve" class="c31 d">c</text>`,
		`<text x="12" y="61" textLength="24" xml:space="preserve">  d</text>`,
		"prefers-color-scheme: dark",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	decoder := xml.NewDecoder(strings.NewReader(got))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
