package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent"
)

// A file of forms that cannot be read keeps no agent from its shares.
func TestDamagedFormsAreSetAside(t *testing.T) {
	for _, text := range []string{"", "nonsense", `{"kind":"forms","version":99,"state":[]}`} {
		path := filepath.Join(t.TempDir(), FormsFile)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &service{options: Options{Log: slog.New(slog.DiscardHandler)}}
		err := s.readOrSetAside(path, func(path string) (err error) {
			s.forms, err = agent.OpenForms(path, nil)
			return err
		})
		if err != nil || s.forms == nil {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%q: it is still there", text)
		}
	}
}
