package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Pages returns the commands of README.md, of its translations and of the pages right below docs, in the order of their names.
func Pages(root string) ([]Command, error) {
	var pages []string
	for _, pattern := range []string{"README*.md", "docs/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		pages = append(pages, found...)
	}
	slices.Sort(pages)
	var all []Command
	var faults []error
	for _, file := range pages {
		commands, err := page(root, file)
		all, faults = append(all, commands...), append(faults, err)
	}
	return all, errors.Join(faults...)
}

// Page returns the commands of one page that a suite runs, and how to compare what they print.
func Page(root, name, test string) ([]Command, *Book, error) {
	book, err := Open(root)
	if err != nil {
		return nil, nil, err
	}
	commands, err := page(root, filepath.Join(root, name))
	return book.Of(test, commands), book, err
}

func page(root, file string) ([]Command, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read a page: %w", err)
	}
	name, err := filepath.Rel(root, file)
	if err != nil {
		return nil, fmt.Errorf("read a page: %w", err)
	}
	return Read(filepath.ToSlash(name), string(text))
}
