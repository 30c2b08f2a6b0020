package process

import "fmt"

// Holders are the living processes that have a file or a device node open, by whatever path, and those that were not looked
// through in time, which may: [Look] tells more.
func Holders(path string) (by, cut []ID, err error) {
	if _, _, err := identify(path); err != nil {
		return nil, nil, fmt.Errorf("find who has a file open: %w", err)
	}
	told := Look(path)
	return told.By[0], told.Cut, nil
}
