package remote

import (
	"errors"
	"slices"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install"
)

// Lacks are the functions of the client's libraries that a machine's driver does not have.
func Lacks(tree install.Tree, finder driver.Finder) ([]string, error) {
	found, err := finder.Find()
	if err != nil {
		return nil, err
	}
	var lacks []string
	for _, library := range driver.Libraries {
		ours, err := driver.Names(tree.Client(string(library)))
		if err != nil {
			return nil, errors.Join(err, errors.New("reinstall Divvy"))
		}
		theirs, err := driver.Names(found.Chosen[library])
		if err != nil {
			return nil, err
		}
		for name := range ours {
			if !theirs[name] {
				lacks = append(lacks, name)
			}
		}
	}
	slices.Sort(lacks)
	return lacks, nil
}
