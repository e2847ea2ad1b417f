package planner

import "slices"

// hungry are brokers that lack partitions: who lacks most is first, of equals the lower (N23). It is a heap of whole
// numbers: what is lacked above 32 bits, and below them the broker's index, turned round so that the lower is more.
type hungry struct {
	heap  []uint64
	aside []uint64
}

func (h *hungry) len() int { return len(h.heap) }

func (h *hungry) push(broker int32, lack int) { h.rise(uint64(lack)<<32 | uint64(^uint32(broker))) }

func brokerOf(key uint64) int32 { return int32(^uint32(key)) }

// first is who lacks most.
func (h *hungry) first() int32 { return brokerOf(h.heap[0]) }

// feedFirst gives one partition to who lacks most; who lacks nothing any more is gone.
func (h *hungry) feedFirst() {
	if h.heap[0] -= 1 << 32; h.heap[0]>>32 == 0 {
		h.removeFirst()
		return
	}
	h.sink()
}

// feed gives one partition to a broker that is among them, wherever in the order it is.
func (h *hungry) feed(broker int32) {
	at := slices.IndexFunc(h.heap, func(key uint64) bool { return brokerOf(key) == broker })
	key := h.heap[at] - 1<<32
	if key>>32 == 0 { // gone; the last takes its place
		last := len(h.heap) - 1
		key, h.heap = h.heap[last], h.heap[:last]
		if at == last {
			return
		}
	}
	h.riseFrom(at, key)
	h.sinkFrom(at, h.heap[at])
}

// setAside takes the first out, until takeBack.
func (h *hungry) setAside() {
	h.aside = append(h.aside, h.heap[0])
	h.removeFirst()
}

// takeBack puts back what was set aside; one of them, if it is not none, was given a partition meanwhile.
func (h *hungry) takeBack(fed int32) {
	for _, key := range h.aside {
		if brokerOf(key) == fed {
			key -= 1 << 32
		}
		if key>>32 > 0 {
			h.rise(key)
		}
	}
	h.aside = h.aside[:0]
}

func (h *hungry) removeFirst() {
	last := len(h.heap) - 1
	h.heap[0] = h.heap[last]
	h.heap = h.heap[:last]
	h.sink()
}

// rise adds a key at the end and lets it rise to its place.
func (h *hungry) rise(key uint64) {
	h.heap = append(h.heap, key)
	h.riseFrom(len(h.heap)-1, key)
}

// riseFrom lets a key rise from a place that is free for it.
func (h *hungry) riseFrom(at int, key uint64) {
	for at > 0 && h.heap[(at-1)/2] < key {
		h.heap[at] = h.heap[(at-1)/2]
		at = (at - 1) / 2
	}
	h.heap[at] = key
}

// sink lets the first sink to its place.
func (h *hungry) sink() {
	if len(h.heap) == 0 {
		return
	}
	h.sinkFrom(0, h.heap[0])
}

// sinkFrom lets a key sink from a place that is free for it.
func (h *hungry) sinkFrom(at int, key uint64) {
	for {
		child := 2*at + 1
		if child >= len(h.heap) {
			break
		}
		if child+1 < len(h.heap) && h.heap[child+1] > h.heap[child] {
			child++
		}
		if h.heap[child] <= key {
			break
		}
		h.heap[at] = h.heap[child]
		at = child
	}
	h.heap[at] = key
}
