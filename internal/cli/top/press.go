package top

import (
	"slices"
	"unicode/utf8"
)

// farthest is further than any row.
const farthest = 1 << 20

// mostTyped bounds a filter in bytes.
const mostTyped = 64

// press is the model after a key.
func (m Model) press(key Key) (Model, Effect) {
	m.said = ""
	if key == "ctrl+c" {
		return m, Effect{Quit: true}
	}
	switch m.pane {
	case paneFilter:
		return m.write(key), Effect{}
	case paneStop:
		return m.confirm(key)
	case paneDetails, paneHelp:
		if key == "q" {
			return m, Effect{Quit: true}
		}
		return m.leaf(key), Effect{}
	}
	return m.command(key)
}

// leaf is the model after a key on help or details that are longer than the screen, which go away on other keys.
func (m Model) leaf(key Key) Model {
	if by := m.distance(key); by != 0 && len(m.body()) > m.room() {
		m, _ = m.scroll(by)
		return m
	}
	m.pane, m.read = paneList, 0
	return m
}

// command is the model after a key on the list.
func (m Model) command(key Key) (Model, Effect) {
	switch key {
	case "q":
		return m, Effect{Quit: true}
	case "?", "h":
		m.pane = paneHelp
	case "s":
		m.order, m.from = Orders[(slices.Index(Orders, m.order)+1)%len(Orders)], follow
	case "/":
		m.pane, m.typed = paneFilter, m.filter
	case "p", "space", " ":
		m.paused = !m.paused
	case "enter":
		if _, ok := m.current(); ok {
			m.pane = paneDetails
		}
	case "x":
		if _, ok := m.current(); ok {
			m.pane = paneStop
		}
	case "esc":
		m.filter, m.from = "", follow
	default:
		m = m.walk(key)
	}
	return m, Effect{}
}

// walk is the model after a key that selects or scrolls. The screen follows the selected share; where none is further up or down,
// and by half a screen, it scrolls: GPUs and notes are there too.
func (m Model) walk(key Key) Model {
	by := m.distance(key)
	switch key {
	case "home", "g":
		return m.toEnd(-1)
	case "end", "G":
		return m.toEnd(1)
	case "pgup", "pgdown":
		if scrolled, ok := m.scroll(by); ok {
			return scrolled
		}
		return m.move(by)
	}
	if by == 0 {
		return m
	}
	if moved := m.move(by); moved.selected != m.selected {
		moved.from = follow
		return moved
	}
	m, _ = m.scroll(by)
	return m
}

// distance is by how many shares or rows a key goes on, 0 for other keys.
func (m Model) distance(key Key) int {
	switch key {
	case "up", "k":
		return -1
	case "down", "j":
		return 1
	case "pgup":
		return -max(1, m.room()/2)
	case "pgdown":
		return max(1, m.room()/2)
	case "home", "g":
		return -farthest
	case "end", "G":
		return farthest
	}
	return 0
}

// move selects the share that is so many further down.
func (m Model) move(by int) Model {
	shown := m.shown()
	if len(shown) == 0 || by == 0 {
		return m
	}
	m.selected = shown[min(max(0, m.at(shown)+by), len(shown)-1)].key()
	return m
}

// write is the model after a key while a filter is written.
func (m Model) write(key Key) Model {
	switch {
	case key == "enter":
		m.filter, m.pane, m.from = m.typed, paneList, follow
		if shown := m.shown(); m.at(shown) < 0 && len(shown) > 0 {
			m.selected = shown[0].key()
		}
	case key == "esc":
		m.pane = paneList
	case key == "backspace":
		_, last := utf8.DecodeLastRuneInString(m.typed)
		m.typed = m.typed[:len(m.typed)-last]
	case key == "space":
		m.typed += " "
	case utf8.RuneCountInString(string(key)) == 1 && len(m.typed) < mostTyped:
		m.typed += string(key)
	}
	return m
}

// confirm is the model after the answer whether a share is to end. Only y ends it.
func (m Model) confirm(key Key) (Model, Effect) {
	m.pane = paneList
	share, ok := m.current()
	if key != "y" || !ok {
		m.said = "nothing was stopped"
		return m, Effect{}
	}
	m.said = "stopping " + share.Name + " …"
	return m, Effect{Stop: share.Tenant}
}
