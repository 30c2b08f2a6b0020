package alloc

// shapeBytes bounds what the shapes of requests take together, most of it their indexes. Those that were not used for
// the longest time are dropped, and made anew when needed.
const shapeBytes = 64 << 20

// shapes are the shapes of plain requests. Those that the workload knows stay, without an index where there is no room.
type shapes struct {
	by map[Request]*shape
	// newest and oldest are the ends of the list of those that count, in the order of their use.
	newest, oldest *shape
	bytes          int
}

func (s *shapes) init() { s.by = map[Request]*shape{} }

func (s *shapes) clear() {
	for _, c := range s.by {
		c.newer, c.older, c.listed, c.index, c.bytes = nil, nil, false, nil, 0
	}
	clear(s.by)
	s.newest, s.oldest, s.bytes = nil, nil, 0
}

// shape returns the shape of a request. Only those of plain requests are kept:
// others, such as those that name a GPU, may differ for every tenant.
func (inv *Inventory) shape(r Request) *shape {
	s := &inv.shapes
	if c := s.by[r]; c != nil {
		s.use(c)
		return c
	}
	c := inv.newShape(r)
	if r.plain() {
		s.by[r] = c
		s.use(c)
	}
	return c
}

// use puts a shape at the front of the list.
func (s *shapes) use(c *shape) {
	if s.newest == c {
		return
	}
	if c.listed {
		s.unlink(c)
	} else {
		c.listed = true
		s.bytes += c.size() + c.bytes
	}
	c.older = s.newest
	if s.newest != nil {
		s.newest.newer = c
	}
	s.newest = c
	if s.oldest == nil {
		s.oldest = c
	}
	s.trim(c)
}

// unlink takes a shape out of the list.
func (s *shapes) unlink(c *shape) {
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		s.newest = c.older
	}
	if c.older != nil {
		c.older.newer = c.newer
	} else {
		s.oldest = c.newer
	}
	c.newer, c.older = nil, nil
}

// grown notes what the index of a shape takes.
func (s *shapes) grown(c *shape, bytes int) {
	if c.listed {
		s.bytes += bytes - c.bytes
	}
	c.bytes = bytes
	if c.listed {
		s.trim(c)
	}
}

// trim drops what was not used for the longest time, but not the shape that is in use.
func (s *shapes) trim(inUse *shape) {
	for s.bytes > shapeBytes && s.oldest != inUse && s.oldest != nil {
		c := s.oldest
		s.unlink(c)
		s.bytes -= c.size() + c.bytes
		c.listed, c.index, c.bytes = false, nil, 0
		if c.arrivals == 0 {
			delete(s.by, c.request)
		}
	}
}

// forgotten notes that the workload does not know a shape any more.
func (s *shapes) forgotten(c *shape) {
	if !c.listed && s.by[c.request] == c {
		delete(s.by, c.request)
	}
}
