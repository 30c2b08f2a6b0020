package docs

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Drawings are described for who does not see them, are for light and dark pages, need nothing from elsewhere, and stand in a page.
func TestDrawings(t *testing.T) {
	tree := readTree(t)
	var pages strings.Builder
	for _, d := range readDocuments(t, tree) {
		pages.WriteString(d.text)
	}
	seen := 0
	for file := range tree.files {
		if path.Ext(file) != ".svg" || !strings.HasPrefix(file, "docs/") {
			continue
		}
		seen++
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range undrawn(string(text)) {
			t.Errorf("%s: %s", file, finding)
		}
		if !strings.Contains(pages.String(), "/"+path.Base(file)+")") && !strings.Contains(pages.String(), "/"+path.Base(file)+`"`) {
			t.Errorf("%s: no page shows it", file)
		}
	}
	if seen == 0 {
		t.Error("there are no drawings")
	}
}

func TestUndrawn(t *testing.T) {
	const right = `<svg xmlns="http://www.w3.org/2000/svg"><title>a</title><desc>b</desc><style>@media (prefers-color-scheme: dark) {}</style><path marker-end="url(#end)"/></svg>`
	for name, c := range map[string]struct{ old, becomes, want string }{
		"right":          {"", "", ""},
		"no title":       {"<title>a</title>", "", "it has no title"},
		"no description": {"<desc>b</desc>", "<desc> </desc>", "it has no desc"},
		"no dark form":   {"prefers-color-scheme: dark", "print", "it has no form for dark pages"},
		"a script":       {"<path", "<script/><path", "it has a script"},
		"an image":       {"<path", `<image href="https://example.org/a.png"/><path`, "it needs https://example.org/a.png"},
		"a font":         {"@media", "@import url(https://example.org/a.css); @media", "it needs something by its style"},
		"broken":         {"</svg>", "", "it is no XML: "},
	} {
		got := undrawn(strings.Replace(right, c.old, c.becomes, 1))
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) == 0 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}

// undrawn lists what is wrong with a drawing.
func undrawn(text string) []string {
	var found []string
	said := map[string]string{}
	at := ""
	for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return []string{fmt.Sprintf("it is no XML: %v", err)}
		}
		switch token := token.(type) {
		case xml.StartElement:
			at = token.Name.Local
			if at == "script" {
				found = append(found, "it has a script")
			}
			for _, a := range token.Attr {
				if a.Name.Local == "href" && !strings.HasPrefix(a.Value, "#") {
					found = append(found, "it needs "+a.Value)
				}
			}
		case xml.CharData:
			said[at] += string(token)
		}
	}
	for _, name := range []string{"title", "desc"} {
		if strings.TrimSpace(said[name]) == "" {
			found = append(found, "it has no "+name)
		}
	}
	if !strings.Contains(said["style"], "prefers-color-scheme: dark") {
		found = append(found, "it has no form for dark pages")
	}
	if strings.Contains(said["style"], "url(") {
		found = append(found, "it needs something by its style")
	}
	return found
}
