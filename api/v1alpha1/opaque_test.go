package v1alpha1

import (
	"errors"
	"strings"
	"testing"
)

func TestShareConfigDocuments(t *testing.T) {
	for _, config := range []ShareConfig{{}, {Policy: PolicyBurst, MaxCores: 60}, {Policy: PolicyWeighted, Weight: 7, Class: ClassOffline, Backend: BackendSlice}, {Backend: BackendTimeslice}, {Backend: BackendMPS}} {
		text, err := EncodeShareConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeShareConfig(text); err != nil || got != config {
			t.Errorf("%+v became %s, %+v, %v", config, text, got, err)
		}
	}
}

func TestDecodeShareConfigIsStrict(t *testing.T) {
	const head = `{"apiVersion":"divvy.dev/v1alpha1","kind":"ShareConfig"`
	for text, want := range map[string]string{
		``:                                 "unexpected end",
		head + `,"wieght":3}`:              `unknown field "wieght"`,
		head + `,"weight":3,"weight":4}`:   `duplicate field "weight"`,
		head + `,"Weight":3}`:              `unknown field "Weight"`,
		head + `,"weight":"3"}`:            "cannot unmarshal",
		`{"kind":"ShareConfig"}`:           "not divvy.dev/v1alpha1 ShareConfig",
		`{"apiVersion":"v1","kind":"Pod"}`: "not divvy.dev/v1alpha1 ShareConfig",
		`[]`:                               "cannot unmarshal",
	} {
		if _, err := DecodeShareConfig([]byte(text)); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func FuzzDecodeShareConfig(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"divvy.dev/v1alpha1","kind":"ShareConfig","policy":"burst","maxCores":60}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		config, err := DecodeShareConfig(text)
		if err != nil {
			return
		}
		again, err := EncodeShareConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeShareConfig(again); err != nil || got != config {
			t.Fatalf("%s became %s: %+v, %v", text, again, got, err)
		}
	})
}
