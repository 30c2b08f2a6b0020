// Package spelling finds the word that a misspelt one is likely to be meant for.
package spelling

import "strings"

// near is by how many letters a word may differ.
const near = 2

// Nearest is the word that begins as a name does or else differs from it by the fewest letters, the first of several; "" if
// none is near. Capital letters in the name and the words do not count.
func Nearest(name string, words []string) string {
	name = strings.ToLower(name)
	found, least := "", near+1
	for _, word := range words {
		lower := strings.ToLower(word)
		far := distance(name, lower)
		if len(name) > 1 && strings.HasPrefix(lower, name) {
			far = 0
		}
		if far < least {
			found, least = word, far
		}
	}
	return found
}

// distance is how many letters must be added, removed or changed to make one word of another; what is far is only said to be.
func distance(a, b string) int {
	const far = 100
	if len(a) > far || len(b) > far {
		return far
	}
	row := make([]int, len(b)+1)
	for i := range row {
		row[i] = i
	}
	for i := range a {
		before := row[0]
		row[0] = i + 1
		for j := range b {
			changed := before
			if a[i] != b[j] {
				changed++
			}
			before = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
