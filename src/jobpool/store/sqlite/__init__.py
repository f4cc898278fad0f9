"""The store on SQLite: durable in one file, for one machine.

producing  settling  leasing  keeping  watching  operating   Store's methods
        joining   depth   rows                               what they share
                    database                                 who may, and when
      writers   connecting   place   session   faults        one file
"""
