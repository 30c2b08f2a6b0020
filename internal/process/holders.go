package process

import "fmt"

// Holders are the living processes that have a file or a device node open, by whatever path, as far as they are seen: [Look] tells
// more.
func Holders(path string) ([]ID, error) {
	if _, _, err := identify(path); err != nil {
		return nil, fmt.Errorf("find who has a file open: %w", err)
	}
	return Look(path).By[0], nil
}
