package top

import (
	"slices"
	"unicode/utf8"
)

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
		m.pane = paneList
		return m, Effect{}
	}
	return m.command(key)
}

// command is the model after a key on the list.
func (m Model) command(key Key) (Model, Effect) {
	switch key {
	case "q":
		return m, Effect{Quit: true}
	case "?", "h":
		m.pane = paneHelp
	case "s":
		m.order = Orders[(slices.Index(Orders, m.order)+1)%len(Orders)]
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
		m.filter = ""
	default:
		m = m.move(m.distance(key))
	}
	return m, Effect{}
}

// distance is by how many shares a key moves the selection, 0 for other keys.
func (m Model) distance(key Key) int {
	switch key {
	case "up", "k":
		return -1
	case "down", "j":
		return 1
	case "pgup":
		return -max(1, m.height/2)
	case "pgdown":
		return max(1, m.height/2)
	case "home", "g":
		return -len(m.now.Shares)
	case "end", "G":
		return len(m.now.Shares)
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
		m.filter, m.pane = m.typed, paneList
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
