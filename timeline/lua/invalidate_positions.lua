-- Purpose: makes all earlier positions in the journal of a feed worthless: too much
--          changed to add it entry by entry.
-- Returns: 1
-- Cost:    O(1)

if changeable() then
  invalidate_positions()
end
return 1
