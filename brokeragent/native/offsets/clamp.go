package offsets

// ClampSnapshot lowers every offset of a snapshot that lies behind end: a group that had read what is lost goes on at the
// log's end, where an offset beyond it would reset the group.
func ClampSnapshot(snapshot []byte, end int64) ([]byte, error) {
	payload, err := checkSum(snapshot)
	if err != nil {
		return nil, err
	}
	s := state{}
	if err := s.applySnapshot(payload); err != nil {
		return nil, err
	}
	for group, e := range s.entries {
		if e.Offset > end {
			e.Offset = end
			s.entries[group] = e
		}
	}
	return appendSum(s.encodeSnapshot()), nil
}
